"""What a job on several hosts finds out about them, and what would fail there (`graphmill doctor --hosts N`)."""
