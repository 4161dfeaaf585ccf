"""Classic groups (JoinGroup, SyncGroup), whose members assign among themselves.

Start at `group`, `rebalance` and `join`. Static members (KIP-345) are in `members` and `join`.
"""
