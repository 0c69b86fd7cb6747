"""Presampled schedules: the neighbourhoods of whole epochs, sampled before a run, on disk. Nothing here needs torch."""
