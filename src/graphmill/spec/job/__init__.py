"""What is asked of a scheduler: options, limits, site profiles, and the resolved job."""
