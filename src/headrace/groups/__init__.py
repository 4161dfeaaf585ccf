"""Groups of consumers, and the offsets that they commit: pure machines on the coordinator runtime.

One machine a partition of `__consumer_offsets` (`machine`), whose state (`state`) holds groups of
every kind: `classic` (JoinGroup and SyncGroup), `consumer` (KIP-848), `streams` (KIP-1071), and
their committed offsets (`offsets`). Functions of these modules take the state and a request and
give an `Outcome`; nothing here waits, or knows a connection.
"""
