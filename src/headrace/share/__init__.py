"""Share groups (KIP-932): queues on partitions, with an acknowledgement a record.

`partition/` is the machine that leases records of one partition to members of one group, `state/`
the durable state behind it (one partition of `__share_group_state`), `persister` the way from the
one to the other. Who is a member of a group is in `headrace.groups.share`.
"""
