"""Share groups (KIP-932): members and their partitions. Start at `heartbeat` and `group`."""
