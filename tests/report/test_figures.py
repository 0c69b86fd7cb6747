"""figures: PNG, PDF and .tex from one chart; the .tex compiles alone, and nothing a person names is ever run."""

import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.metrics import write_metrics
from graphmill.report.figures import figures
from graphmill.report.latex import build_tex, find_latex
from graphmill.report.pgf import MARKER_LINE, escape_tex
from graphmill.tasks.node_classification.page import KIND as NODES

needs_latexmk = pytest.mark.skipif(
    not shutil.which("latexmk"), reason="latexmk is absent: apt-get install texlive-latex-base texlive-pictures latexmk"
)
NASTY = r"\immediate\write18{touch owned} $x_1$ #% & {é} ~^ <|> ``-- 汉 \input{/etc/passwd}"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without_latex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no-programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))


@pytest.fixture
def without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time is that of matplotlib; for tests that look at the .tex, the names and the notes."""
    monkeypatch.setattr("graphmill.report.draw.draw_chart", lambda *_: [])


@pytest.fixture
def small(tmp_path: Path, plausible) -> Path:
    path = tmp_path / "small.csv"
    write_metrics(path, plausible.study_rows(ks=(1, 16), seeds=(1, 2), epochs=3), NODES.columns)
    return path


def test_every_figure_is_written_in_every_form(small: Path, without_latex):
    drawn = figures(small)
    names = ("sync_ablation", "best_val_micro_f1_vs_total_comm", "pareto_frontier_fp32")
    stems = [f"{stem}_test-data" for stem in (*names, "learning_loss", "learning_val_micro_f1")]
    assert [path.as_posix() for path in drawn.tex] == [f"plots/{stem}.tex" for stem in stems]
    assert [path.name for path in drawn.images] == [f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf")]
    for path in drawn.images:
        assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    width = int.from_bytes(drawn.images[0].read_bytes()[16:20])
    assert width == round((2 * 2.9 + 0.6) * 200)  # two panels at 200 dpi


def test_without_latex_the_tex_is_written_and_the_person_is_told(small: Path, without_latex, without_images):
    drawn = figures(small)
    assert drawn.pdfs == ()
    assert "LaTeX is absent, so plots/*.tex were written but not compiled" in drawn.notes[-1]
    assert "apt-get install" in drawn.notes[-1]
    with pytest.raises(UserError, match="neither latexmk nor pdflatex"):
        build_tex(drawn.tex[0])


def test_same_metrics_give_the_same_bytes(small: Path, without_latex):
    """Of two kinds of figures; what draws the others is the same."""
    only = ["sync_ablation", "pareto_frontier"]
    first = figures(small, only=only, images_dir=Path("one"), plots_dir=Path("one"))
    second = figures(small, only=only, images_dir=Path("two"), plots_dir=Path("two"))
    for one, two in zip(first.images + first.tex, second.images + second.tex, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_golden_tex(small: Path, without_latex, without_images, golden):
    for path in figures(Path("small.csv")).tex:
        golden(f"report/{path.name}", path.read_text())


def test_synthetic_data_says_so_in_the_figure(plausible, without_latex, without_images):
    for synthetic in (True, False):
        write_metrics(Path("metrics.csv"), plausible.run_rows(synthetic=synthetic, epochs=2), NODES.columns)
        drawn = figures(Path("metrics.csv"))
        assert all(("synthetic data" in path.read_text()) == synthetic for path in drawn.tex)


def test_a_column_below_zero_is_drawn(plausible, without_latex):
    """Whatever a person compares: a gain, a logarithm."""
    write_metrics(
        Path("metrics.csv"), [row | {"val_loss": -1.5} for row in plausible.run_rows(epochs=2)], NODES.columns
    )
    assert figures(Path("metrics.csv"), comm_column="val_loss", only=["pareto_frontier"], compile_tex=False).images


def test_each_dataset_has_figures_of_its_own(plausible, without_latex, without_images):
    rows = plausible.run_rows(dataset="cora", epochs=2) + plausible.run_rows(dataset="sbm", synthetic=True, epochs=2)
    write_metrics(Path("metrics.csv"), rows, NODES.columns)
    drawn = figures(Path("metrics.csv"), only=["pareto_frontier"])
    assert [path.name for path in drawn.tex] == ["pareto_frontier_fp32_cora.tex", "pareto_frontier_fp32_sbm.tex"]
    assert "synthetic" not in drawn.tex[0].read_text()


def test_a_tex_file_of_the_persons_own_is_never_overwritten(small: Path, without_latex):
    own = Path("plots/sync_ablation_test-data.tex")
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(UserError, match="was not written by graphmill"):
        figures(small)
    assert own.read_text() == "mine"
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"only": ["paretto_frontier"]}, "did you mean 'pareto_frontier'"),
        ({"comm_column": "mib"}, "no column of numbers named 'mib'"),
        ({"tex_file": Path("plots/absent.tex")}, "give one of plots/sync_ablation_test-data.tex"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_written(small: Path, options, says):
    with pytest.raises(UserError, match=says):
        figures(small, **options)
    assert not Path("plots").exists()


WORDS = [r"textbackslash", r"textasciitilde", r"textasciicircum", r"textless", r"textgreater", r"textbar", r"dots"]
HARMLESS = [*(f"\\{word}{{}}" for word in WORDS), r"$\pm$", r"$\times$", "-{}-", *(f"\\{c}" for c in "{}$&#%_")]


@given(st.text())
def test_escaped_text_has_no_active_character_left(text: str):
    escaped = escape_tex(text)
    for harmless in HARMLESS:
        escaped = escaped.replace(harmless, "")
    assert not set(escaped) & set("\\{}$&#%_~^\n\r")


@needs_latexmk
def test_every_figure_compiles_alone_and_to_the_same_bytes(metrics_csv: Path):
    drawn = figures(metrics_csv)
    assert [path.as_posix() for path in drawn.pdfs] == [f"plots/build/{path.stem}.pdf" for path in drawn.tex]
    assert not drawn.notes
    first = drawn.pdfs[0].read_bytes()
    assert first.startswith(b"%PDF")
    assert build_tex(drawn.tex[0]).read_bytes() == first
    assert sorted(path.suffix for path in Path("plots/build").iterdir()) == [".pdf"] * 5  # no litter


@needs_latexmk
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is absent: apt-get install poppler-utils")
def test_the_compiled_figure_says_what_it_shows(plausible):
    write_metrics(
        Path("metrics.csv"), plausible.study_rows(ks=(1, 16), synthetic=True, dataset="sbm_100k & co"), NODES.columns
    )
    for pdf in figures(Path("metrics.csv")).pdfs:
        text = os.popen(f"pdftotext -layout '{pdf}' -").read()  # a path of our own
        assert "sbm 100k & co, 4 ranks, mean ± s.d. of 3 seeds" in text.replace("_", " ")
        assert "synthetic data" in text
        assert ("loss (nats)" if "learning_loss" in pdf.name else "validation micro-F1") in text


@needs_latexmk
def test_a_nasty_name_is_printed_and_not_run(plausible):
    write_metrics(
        Path("metrics.csv"),
        plausible.study_rows(ks=(1, 16), dataset=NASTY, schemes=(NASTY, "local_sgd")),
        NODES.columns,
    )
    drawn = figures(Path("metrics.csv"))
    assert len(drawn.pdfs) == 5
    assert not list(Path().rglob("owned"))


@needs_latexmk
def test_neither_shell_escape_nor_a_latexmkrc_is_obeyed():
    rc = "system('touch owned'); $pdflatex = 'pdflatex -shell-escape %O %S';"
    for name in (".latexmkrc", "latexmkrc"):
        Path(name).write_text(rc)
    body = r"\documentclass{article}\begin{document}\immediate\write18{touch owned}x\end{document}"
    Path("own.tex").write_text(body)
    assert build_tex(Path("own.tex")).exists()
    assert not list(Path().rglob("owned"))


@needs_latexmk
def test_a_tex_file_of_the_persons_own_is_compiled_as_it_is():
    Path("plots").mkdir()
    Path("plots/part.tex").write_text("part")
    own = Path("plots/sync_ablation.tex")
    own.write_text(r"\documentclass{article}\begin{document}\input{part}\end{document}")
    drawn = figures(Path("no-metrics-needed.csv"), tex_file=own)
    assert drawn.pdfs == (Path("plots/build/sync_ablation.pdf"),)
    assert MARKER_LINE not in own.read_text()


@needs_latexmk
def test_only_the_file_that_was_asked_for_is_compiled(small: Path):
    drawn = figures(small, tex_file=Path("plots/sync_ablation_test-data.tex"))
    assert drawn.pdfs == (Path("plots/build/sync_ablation_test-data.pdf"),)
    assert Path("plots/sync_ablation_test-data.tex") in drawn.tex
    assert len(drawn.tex) > 1, "the others are written, and not compiled"


@needs_latexmk
def test_what_latex_says_is_shown_and_its_log_is_kept():
    Path("broken.tex").write_text("\\documentclass{article}\\begin{document}\n\\nosuchcommand\n\\end{document}")
    with pytest.raises(UserError, match=r"(?s)not compile broken.tex:.*broken.tex:2: Undefined.*build/broken.log"):
        build_tex(Path("broken.tex"), Path("build"))
    assert "nosuchcommand" in Path("build/broken.log").read_text()
    assert not Path("build/broken.pdf").exists()


@needs_latexmk
def test_pdflatex_alone_is_enough(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    only = tmp_path / "only-pdflatex"
    only.mkdir()
    program = only / "pdflatex"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("pdflatex")} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{only}")
    assert find_latex() == "pdflatex"
    assert len(figures(small, only=["pareto_frontier"]).pdfs) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent.tex", "does not exist"),
        ("a b.tex", "not a name that LaTeX"),
        ("-x.tex", "not a name"),
        ("x.txt", "not a name"),
    ],
)
def test_files_that_latex_cannot_be_given_are_refused(name: str, says: str):
    if name != "absent.tex":
        Path(name).write_text("x")
    with pytest.raises(UserError, match=says):
        build_tex(Path(name))


def test_runs_of_one_rank_are_in_no_figure_of_communication(tmp_path: Path, plausible, without_latex, without_images):
    write_metrics(tmp_path / "alone.csv", plausible.run_rows(world_size=1, epochs=3), NODES.columns)
    drawn = figures(tmp_path / "alone.csv")
    names = ("learning_loss", "learning_val_micro_f1")
    assert [path.name for path in drawn.tex] == [f"{name}_test-data.tex" for name in names]
    assert any("one rank" in note for note in drawn.notes)
    with pytest.raises(UserError, match="one rank"):
        figures(tmp_path / "alone.csv", only=["sync_ablation"])


def test_one_runs_epochs_are_drawn_as_a_frontier_only_where_it_is_asked_for(
    tmp_path: Path, plausible, without_latex, without_images
):
    write_metrics(tmp_path / "one.csv", plausible.run_rows(), NODES.columns)
    drawn = figures(tmp_path / "one.csv")
    assert not [path for path in drawn.tex if "pareto" in path.name]
    assert any("no Pareto frontier" in note for note in drawn.notes)
    (asked,) = figures(tmp_path / "one.csv", only=["pareto_frontier"]).tex
    assert asked.name.startswith("pareto_frontier")
