"""Streams groups (KIP-1071): topologies, tasks, heartbeats. Start at `protocol` and `heartbeat`."""
