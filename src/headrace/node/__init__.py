"""The composition of a node. A program starts `node.Node`.

Nothing but `cli`, `web` and `testing` imports from here.
"""
