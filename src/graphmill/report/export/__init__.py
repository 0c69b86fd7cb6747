"""Run folders in the format of an experiment tracker, after the fact: one reader, one thin writer for each tracker."""
