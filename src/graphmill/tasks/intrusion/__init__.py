"""Intrusion detection on the CAN bus: captures, windows of frames, one graph of ids per window. No torch here."""
