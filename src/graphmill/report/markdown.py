"""A page as Markdown: its tables and sentences. Charts are given in words, for Markdown has none."""

import re
from collections.abc import Iterator, Sequence

from graphmill.report.page import Block, Breakdown, Facts, Figures, Page, PageCell, Remark, Table, link_of, shown_text

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#&~])")


def markdown(page: Page) -> str:
    """The whole file; same page, same bytes. What is special to Markdown or HTML in a text is escaped."""
    synthetic = " (synthetic data)" if page.is_synthetic else ""
    lines = [f"# {_text(page.title)}{synthetic}", "", f"{page.what}: {_text(page.about)}", ""]
    lines += [f"- {_text(each.name)}: **{_text(each.value)}** {_text(each.about)}".rstrip() for each in page.headlines]
    for section in page.sections:
        lines += ["", f"## {_text(section.title)}"]
        for block in section.blocks:
            lines += ["", *_lines(block)]
    return "\n".join([*lines, "", _text(page.written), ""])


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield from _caption(block.caption)
            rules = ["---:" if place and block.is_number(place) else "---" for place in range(len(block.columns))]
            yield from (_row(block.columns), _row(rules, is_rule=True))
            for place, row in enumerate(block.rows):
                cells = [_cell(cell) for cell in row]
                yield _row([f"**{cell}**" for cell in cells] if place == block.marked else cells, is_rule=True)
        case Facts():
            yield from (*_caption(block.caption), _row(["", ""]), "| --- | --- |")
            yield from (_row([name, shown_text(value)]) for name, value in block.rows)
        case Figures():
            yield from (f"- {_text(words)}" for words in block.texts)
        case Breakdown():
            yield from (*_caption(block.caption), _row(["", "share"]), "| --- | ---: |")
            yield from (_row([name, f"{100 * share:.1f} %"]) for name, share in block.parts)
        case Remark():
            yield _text(block.text)


def _caption(text: str) -> Sequence[str]:
    return [_text(text), ""] if text else []


def _row(cells: Sequence[str], *, is_rule: bool = False) -> str:
    """`is_rule`: the cells are Markdown already."""
    return f"| {' | '.join(cell if is_rule else _text(cell) for cell in cells)} |"


def _cell(cell: PageCell) -> str:
    text = _text(shown_text(cell))
    return f"[{text}]({link_of(cell)})" if link_of(cell) else text


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
