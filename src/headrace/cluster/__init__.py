"""Other nodes of the cluster."""
