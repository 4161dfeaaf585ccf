"""TLS between nodes: their certificates, the cluster's CA, and how both are renewed.

Read docs/adr/0008 first, then `node_tls` (what a node has), `enrolment` (how it gets a
certificate), `rotation` (pure: how a CA is replaced) and `care` (the shell around both).
"""
