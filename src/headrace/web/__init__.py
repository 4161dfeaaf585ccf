"""Pages for people and machines: health, readiness, metrics.

`server.WebServer` is what a node starts. Nothing of a web library is loaded before somebody asks
for a page: a node that nobody looks at pays neither time nor memory for it.
"""
