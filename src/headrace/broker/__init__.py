"""The node: connections, dispatch, one handler module per API family, composition root.

`node.Node` is what a program starts. `broker.Broker` is what handlers see of it, `dispatch` the
table of what is served, `replicas` the partitions that are here. Nothing outside of `cli`, `web`
and `testing` imports from here.
"""
