"""What a notebook shows of a run: the headlines and the curves of its report, in a cell."""

from html import escape

from graphmill.record.run_folder import RunFolder
from graphmill.report.html import svg
from graphmill.report.page import Block, Figures
from graphmill.report.run_page import about, headlines
from graphmill.report.run_record import RunRecord
from graphmill.report.sections import curves_section
from graphmill.report.table import load_runs


def run_cell(folder: RunFolder) -> str:
    """HTML without style sheets or scripts; black on white, for the charts are drawn so, whatever the notebook's theme.

    Texts from the run folder are escaped.
    """
    record = RunRecord.read(folder)
    rows = "".join(
        f"<tr><th>{escape(each.name)}</th><td>{escape(each.value)}</td><td>{escape(each.about)}</td></tr>"
        for each in headlines(record)
    )
    shown = "".join(map(_html, curves_section(lambda: load_runs([folder])).blocks))
    title = f"<b>{escape(record.plan.run_id)}</b>: {escape(about(record.plan))}"
    return f'<div style="background:#fff;color:#000;padding:.5em">{title}<table>{rows}</table>{shown}</div>'


def _html(block: Block) -> str:
    if not isinstance(block, Figures):
        return ""
    return "".join(svg(chart, words) for chart, words in zip(block.charts, block.texts, strict=True))
