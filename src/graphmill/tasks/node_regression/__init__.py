"""Node regression: prepare, model, task and measures of one problem."""
