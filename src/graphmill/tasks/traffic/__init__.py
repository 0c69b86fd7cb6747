"""Traffic forecasting: prepare, windows, model, task and metrics of one problem."""
