"""Share groups (KIP-932): queues on partitions, with per-record acknowledgement.

`partition/` is the machine that leases records of one partition to members of one group, `state/`
its durable state (one partition of `__share_group_state`), and `persister` connects the two.
Group membership is in `headrace.groups.share`.
"""
