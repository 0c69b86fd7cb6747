"""Hot caches: which rows of other parts a part should hold. No torch: a partition is ranked before any run."""
