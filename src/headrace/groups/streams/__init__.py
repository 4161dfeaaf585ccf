"""Streams groups (KIP-1071): topologies, tasks, heartbeats. Start at `heartbeat` and `group`."""
