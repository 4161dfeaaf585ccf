"""HTTP pages of a node: health, readiness, metrics, share group inspection.

A node starts `server.WebServer`. The web libraries load with the first connection, so a node whose
pages are never requested spends neither time nor memory on them.
"""
