"""Share groups (KIP-932): members, and what they share. Start at `heartbeat` and `group`."""
