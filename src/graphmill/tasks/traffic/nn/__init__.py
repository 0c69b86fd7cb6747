"""Models and losses of traffic forecasting."""
