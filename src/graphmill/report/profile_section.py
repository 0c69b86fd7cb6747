"""The section of a run's page about its profile: where its steps went, and the one thing to change."""

from graphmill.diagnose.profile import STEP, Row, advice, dominant, notes_of, rows_of
from graphmill.record.phases import Profile, profile_paths, read_profile
from graphmill.record.run_folder import RunFolder
from graphmill.report.page import Block, Breakdown, Remark, Section, Shown, Table
from graphmill.report.sections import told

_MOST_OPERATORS = 12


def profile_section(folder: RunFolder) -> Section:
    """Section about the profile of the run's steps; empty if the run was not profiled."""
    is_profiled = any(path.is_file() for path in profile_paths(folder.path))
    return Section("Profile of its steps", told(lambda: _blocks(read_profile(folder.path))) if is_profiled else ())


def _blocks(profile: Profile) -> list[Block]:
    found, rows = advice(profile), rows_of(profile)
    first = profile.ranks[0]
    own = [(row.phase, row.share) for row in rows if not row.background and row.phase != STEP]
    what = f"{first.num_steps} steps that were timed, mean over ranks"
    blocks: list[Block] = [
        Remark(f"{found.text}."),
        *(Remark(f"Try: {text}.") for text in found.fixes),
        Breakdown(f"Share of a step, {what}", tuple(own)),
        Table(
            "Phases of a step; what is behind it costs it only what it waits",
            ("phase", "thread", "ms a step", "median", "lower quartile", "upper quartile"),
            tuple(_cells(row) for row in rows),
        ),
    ]
    operators = tuple(
        (each.name, each.phase, round(each.calls, 1), _ms(each.self_s), Shown(f"{100 * share:.1f}", share))
        for each, share in dominant(profile)[:_MOST_OPERATORS]
    )
    if operators:
        columns = ("operator", "phase", "calls", "ms a step", "share, %")
        blocks.append(Table(f"Operators of rank 0, {first.num_traced} traced steps", columns, operators))
    return [*blocks, *(Remark(f"Note: {note}.", "unsure") for note in notes_of(profile))]


def _cells(row: Row) -> tuple[str | Shown, ...]:
    numbers = (_ms(seconds) for seconds in (row.mean_s, row.median_s, row.low_s, row.high_s))
    return (row.phase, "behind it" if row.background else "step", *numbers)


def _ms(seconds: float) -> Shown:
    return Shown(f"{1e3 * seconds:.2f}", 1e3 * seconds)
