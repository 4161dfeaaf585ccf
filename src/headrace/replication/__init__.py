"""Partitions of a node: their logs and roles, kept as the image says, and reading them for
fetches."""
