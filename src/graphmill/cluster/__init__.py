"""Plan to ranks: the local launcher, studies, verification (control plane: never imports torch)."""
