"""The sampling service: what a process that samples hands over to processes that train, and how."""
