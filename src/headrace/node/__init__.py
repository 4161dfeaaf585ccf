"""A node, put together. `node.Node` is what a program starts.

Nothing but `cli`, `web` and `testing` imports from here.
"""
