"""Consumer groups: membership by KIP-848 or by the classic protocol, commits, rebalances.

`member` and `classic_member` are what a member says to its coordinator and what responses mean to
it; `assignors` is how a classic leader distributes partitions. These are pure. `membership` and
`classic_membership` are their shells, `holdings` is where partitions change hands, `offsets` is
what is committed, and `session` composes them for `Consumer`.
"""
