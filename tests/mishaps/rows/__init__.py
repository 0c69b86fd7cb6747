"""All mishaps, one table per file."""

from rows import archives, captures, experiments, jobs, models, parts, runs, series, tables

ROWS = [
    *archives.ROWS,
    *tables.ROWS,
    *series.ROWS,
    *captures.ROWS,
    *experiments.ROWS,
    *jobs.ROWS,
    *models.ROWS,
    *parts.ROWS,
    *runs.ROWS,
]
