"""One share partition: which records of a partition are leased to whom. Pure; time is an input."""
