"""The methods of `Admin`, by subject. Users import `headrace.client.Admin`."""
