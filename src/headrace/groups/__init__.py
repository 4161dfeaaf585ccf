"""Groups of consumers, and the offsets that they commit: pure machines on the coordinator runtime.

One machine per partition of `__consumer_offsets` (`machine`), whose state (`state`) holds groups of
every kind: `classic` (JoinGroup and SyncGroup), `consumer` (KIP-848), `share` (KIP-932), `streams`
(KIP-1071), and their committed offsets (`offsets`). Functions of these modules take the state and a
request and return an `Outcome`; nothing here waits, or knows a connection.

The same job has the same file name in every kind: `group` and `members` (what there is), `records`
(how it is written and read), `requests` (what is refused), `heartbeat` (what members do), `leave`
(how they go), `target` (what they should have), `reconciliation` (how they get there), `responses`
(what they are told), `offsets` (who commits), `description` (what tools see), `deadlines` (what is
due), `dispatch` (what the machine calls). What several kinds use is in this folder.
"""
