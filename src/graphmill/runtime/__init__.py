"""Who am I (rank, world, host), what does this machine have, where may I write, was I asked to stop."""
