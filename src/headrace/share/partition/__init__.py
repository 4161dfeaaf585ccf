"""One share partition: the leases of its records to members. Pure; time is an input."""
