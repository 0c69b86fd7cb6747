"""What hosts and ranks use while a run lasts."""
