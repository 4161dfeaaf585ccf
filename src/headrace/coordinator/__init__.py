"""The event-sourced runtime that groups, transactions, share state and the tier's metadata share.

A coordinator owns the partitions of its internal topic that this node leads. What it knows of one
is a *machine*: pure, changed only by replaying records, so that reading the partition gives it
again. Start at `machine` for what a machine promises, `shard` for one partition, `coordinator` for
all of them, `records` for the bytes.
"""
