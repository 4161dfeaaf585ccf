"""The connections between nodes: who is at the other end, Raft messages, calls and responses.

A node opens one control connection to every peer, and one for bulk data when it has some. Who
opened a connection sends messages and requests on it, the other side responses only: a frame never
says which it is, and the sender of a message is the node that the handshake proved.

Read `handshake` first (pure), then `links` (what a node holds), then `connection` (one socket).
"""
