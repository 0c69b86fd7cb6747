"""Copies datasets to host-local disks before the ranks start."""
