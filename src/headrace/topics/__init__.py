"""Topics: what they may be called, where their replicas go, how they are configured and created."""
