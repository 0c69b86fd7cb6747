"""Which class is each graph of a set of? Graphs at rest, batches of whole graphs, models, measures."""
