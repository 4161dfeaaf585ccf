"""Committed offsets: the store, commits, fetches and expiry."""
