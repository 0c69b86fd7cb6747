"""Node classification: prepare, model, task and metrics of one problem."""
