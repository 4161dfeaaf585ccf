"""Transactions (KIP-98, KIP-890): the automaton of transactional ids, pure, on the runtime.

One machine a partition of `__transaction_state` (`machine`), whose state (`state`) has a
transaction for each transactional id. Operations are functions by what they do: `initialization`
(InitProducerId), `partitions` (what is part of a transaction), `ending` (commit, abort, timeouts,
completion), `listing` (for administrators). Nothing here waits, or writes a marker: a transaction
that is decided is handed to the shell, which says when every partition has its marker.
"""
