"""A calendar of any epochs, against walking through them step by step."""

import ast
from itertools import accumulate, chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphmill
from graphmill.spec.calendar import Calendar, EqualBatches, planned_end

SOURCE = Path(graphmill.__file__).parent
LENGTHS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=5)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    lengths = tuple(draw(LENGTHS))
    steps = sum(epochs * length for epochs, length in lengths)
    return Calendar(lengths, draw(st.integers(1, 12)), steps - draw(st.integers(0, lengths[-1][1] - 1)))


def walked(calendar: Calendar) -> list[tuple[int, int]]:
    """(epoch, step) of every step of the run, in order."""
    lengths = [length for epochs, length in calendar.epoch_lengths for _ in range(epochs)]
    every = [(epoch, step) for epoch, length in enumerate(lengths) for step in range(length)]
    return every[: calendar.last_step]


@given(calendars())
def test_positions_are_those_of_a_walk(calendar):
    steps = walked(calendar)
    assert [calendar.position(done) for done in range(len(steps))] == steps
    assert [calendar.steps_done(*at) for at in steps] == list(range(len(steps)))
    assert calendar.position(len(steps)) == (calendar.num_epochs, 0)
    assert calendar.steps_done(calendar.num_epochs) == len(steps) == calendar.last_step
    assert [done for done in range(len(steps) + 1) if calendar.is_last(done)] == [len(steps)]


@given(calendars())
def test_epochs_are_those_of_a_walk(calendar):
    steps = walked(calendar)
    counts = [sum(epoch == at[0] for at in steps) for epoch in range(calendar.num_epochs)]
    assert calendar.num_epochs == steps[-1][0] + 1
    assert [calendar.steps_in(epoch) for epoch in range(calendar.num_epochs)] == counts
    ends = list(accumulate(counts))
    assert [calendar.steps_done(epoch, count) for epoch, count in enumerate(counts)] == ends
    assert [calendar.length(epoch) >= count for epoch, count in enumerate(counts)] == [True] * len(counts)
    assert [calendar.length(epoch) for epoch in range(calendar.num_epochs - 1)] == counts[:-1]


@given(calendars())
def test_rounds_are_those_of_a_walk(calendar):
    steps, ends = walked(calendar), []
    for done, (epoch, step) in enumerate(steps, start=1):
        is_last_of_epoch = done == len(steps) or steps[done][0] != epoch
        if (step + 1) % calendar.sync_every == 0 or is_last_of_epoch:
            ends.append(done)
    assert list(calendar.round_ends()) == ends
    assert [done for done in range(len(steps) + 1) if calendar.closes_round(done)] == ends
    counted = [sum(end <= done for end in ends) for done in range(len(steps) + 1)]
    assert [calendar.rounds_ended(done) for done in range(len(steps) + 1)] == counted


@given(calendars(), st.data())
def test_an_earlier_end_changes_nothing_before_it(calendar, data):
    last_step = data.draw(st.integers(1, calendar.last_step))
    cut = calendar.cut(last_step)
    assert cut.last_step == last_step
    assert walked(cut) == walked(calendar)[:last_step]
    assert cut.num_epochs == walked(calendar)[last_step - 1][0] + 1
    assert calendar.cut(calendar.last_step) == calendar


@given(calendars())
def test_what_lies_outside_is_refused(calendar):
    for steps_done in (-1, calendar.last_step + 1):
        with pytest.raises(ValueError, match=str(calendar.last_step)):
            calendar.position(steps_done)
    for epoch, step in ((-1, 0), (0, calendar.steps_in(0) + 1), (0, -1), (calendar.num_epochs, 1)):
        with pytest.raises(ValueError, match="epoch"):
            calendar.steps_done(epoch, step)


@pytest.mark.parametrize(
    ("lengths", "every", "last_step"),
    [((), 1, 1), (((1, 0),), 1, 0), (((0, 3),), 1, 0), (((1, 3),), 0, 3), (((2, 3),), 1, 3), (((2, 3),), 1, 7)],
)
def test_an_impossible_calendar_is_refused(lengths, every, last_step):
    with pytest.raises(ValueError, match="step"):
        Calendar(lengths, every, last_step)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 7))
def test_equal_batches_hold_every_seed_once(num_seeds, batch_size, ranks):
    batches, seeds = EqualBatches(num_seeds, batch_size, ranks), list(range(num_seeds))
    cut = [seeds[batches.bounds(step)] for step in range(batches.num_steps)]
    assert list(chain.from_iterable(cut)) == seeds
    assert all(len(batch) == batch_size * ranks for batch in cut[:-1])
    assert 0 < len(cut[-1]) <= batch_size * ranks
    assert [batches.seeds_in(steps) for steps in range(len(cut) + 1)] == [0, *accumulate(map(len, cut))]


ASKS = {"epoch_lengths", "last_step", "num_steps", "sync_every", "steps_per_epoch"}
DIVIDES = (ast.FloorDiv, ast.Mod)


def test_nobody_else_divides_steps_by_epochs():
    """Numbers of the calendar are compared, multiplied and shown elsewhere, but `//`, `%` and divmod stay inside."""
    found = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name == "calendar.py" or not any(name in text for name in ASKS):  # the others need no look
            continue
        nodes = list(ast.walk(ast.parse(text)))
        for node in nodes:
            is_division = isinstance(node, ast.BinOp) and isinstance(node.op, DIVIDES)
            is_divmod = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "divmod"
            if not (is_division or is_divmod):
                continue
            names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            found += [f"{path.relative_to(SOURCE)}:{node.lineno}"] if names & ASKS else []
        names = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
        found += [f"{path.relative_to(SOURCE)}: steps_per_epoch"] if "steps_per_epoch" in names else []
    assert not found


def test_the_earlier_of_two_limits_ends_a_run():
    batches = EqualBatches(100, 10, 2)  # 5 steps of each rank an epoch
    assert batches.num_steps == 5
    assert planned_end(batches, epochs=3, max_steps=22) == (((3, 5),), 11)
    assert planned_end(batches, epochs=2, max_steps=22) == (((2, 5),), 10)
    assert planned_end(batches, epochs=None, max_steps=22) == (((3, 5),), 11)
    assert planned_end(batches, epochs=3, max_steps=None) == (((3, 5),), 15)
