"""The event-sourced runtime of groups, transactions, share state and the tier's metadata.

A coordinator owns the partitions of its internal topic that this node leads. The state of a
partition is a *machine*: pure, changed only by replaying records, so that reading the partition
rebuilds it. Start at `machine` for what a machine promises, `shard` for one partition,
`coordinator` for all of them, `records` for the bytes.
"""
