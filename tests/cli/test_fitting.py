"""Whatever the terminal is as wide as: no number and no word of a table is cut."""

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphmill.cli.fitting import fitting

WORDS = st.text("abcdefgh", min_size=1, max_size=12)
NUMBERS = st.floats(-1e12, 1e12).map(lambda number: f"{number:,.4f}")
CELLS = st.one_of(NUMBERS, st.lists(WORDS, min_size=1, max_size=6).map(" ".join))


def printed(table: Table, width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(fitting(table, console))
    return console.export_text()


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.tuples(*[CELLS] * n), min_size=1, max_size=4)), st.data())
def test_nothing_is_cut(rows, data):
    table = Table(title="a title")
    for number in range(len(rows[0])):
        table.add_column(f"column {number}", no_wrap=data.draw(st.booleans()), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    width = data.draw(st.integers(40, 200))
    text = printed(table, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = text.replace("\n", " ").split()
    assert not [word for row in rows for cell in row for word in cell.split() if word not in words]


def test_a_table_that_does_not_fit_becomes_blocks_that_say_what_an_empty_cell_means():
    table = Table("\nscheme", "val\nF1", caption="[red]below[/red]")
    table.add_row("local", "0.8123456789 ±.0123456789")
    table.add_row("", "0.7")
    table.columns[1].no_wrap = True
    assert printed(table, 20).split() == [
        *(
            "scheme",
            "local",
            "val",
            "F1",
            "0.8123456789",
            "±.0123456789",
            "scheme",
            "local",
            "val",
            "F1",
            "0.7",
            "below",
        )
    ]
