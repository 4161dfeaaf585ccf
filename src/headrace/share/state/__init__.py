"""The durable states of share partitions: one machine a partition of `__share_group_state`."""
