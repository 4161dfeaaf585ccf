"""Consumer groups (KIP-848). Start at `protocol`, `group` and `reconciliation`."""
