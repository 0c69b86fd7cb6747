"""What a run used and what holds it back: epilog, advice, bottleneck."""
