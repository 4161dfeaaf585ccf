"""Topics: names, replica placement, configs and creation."""
