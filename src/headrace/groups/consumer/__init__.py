"""Consumer groups (KIP-848), whose assignments the broker computes.

Start at `heartbeat`, `group` and `reconciliation`. Regex subscriptions are in
`regex_subscriptions`, static members (KIP-345) in `requests`, members of the classic protocol in
`classic_members`.
"""
