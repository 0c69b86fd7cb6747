"""Layers and models that more than one task uses, and the native operators behind them."""
