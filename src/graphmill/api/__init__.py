"""What the commands do, as functions: each command parses its words, calls one of these, and prints what it returns."""
