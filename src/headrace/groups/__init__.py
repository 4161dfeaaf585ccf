"""Groups and their committed offsets: pure machines on the coordinator runtime.

One machine per partition of `__consumer_offsets` (`machine`), whose state (`state`) holds groups of
every kind: `classic` (JoinGroup and SyncGroup), `consumer` (KIP-848), `share` (KIP-932), `streams`
(KIP-1071), and their committed offsets (`offsets`). Functions of these modules take the state and a
request and return an `Outcome`; nothing here waits, or knows a connection.

The same job has the same file name in every kind: `group` and `members` (the state), `records`
(how it is written and read), `requests` (validation), `heartbeat` (what members do), `leave`
(how they leave), `target` (the target assignment), `reconciliation` (the steps towards it),
`responses` (what members are told), `offsets` (which commits are accepted), `description` (what
tools see), `deadlines` (timeouts), `dispatch` (what the machine calls). Code that several kinds use
is in this folder.
"""
