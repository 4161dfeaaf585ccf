"""Classic groups: joining, syncing, leaving. Start at `protocol`, `group` and `rebalance`."""
