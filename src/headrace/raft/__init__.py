"""One log that a quorum of nodes agrees on: the metadata group.

`core` is the pure machine, `storage` its files, `driver` runs both on the loop, `explain` says in
words how the quorum is. The core follows the Raft dissertation and, in its form, etcd's: inputs
are messages, proposals and ticks, the output is a `Ready`. Import from the modules.
"""
