"""Links: read, split, prepared, stored."""
