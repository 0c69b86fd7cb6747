"""Time and memory of a plan: by a trial of its first steps, by arithmetic, and the search for what fits."""
