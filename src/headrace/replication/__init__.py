"""Partitions of a node: logs and roles that follow the image, and reads for fetches."""
