"""Checks of GPU kernels that need no GPU: what ptxas makes of them, their order of programs, what they read and write.

See README.md. Nothing here imports graphmill: the checks are of anybody's kernels.
"""
