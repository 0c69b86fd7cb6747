"""A reader per raw layout."""
