"""The durable states of share partitions: one machine per partition of `__share_group_state`."""
