"""Strong, weak and sensitivity studies: from run folders to tables, JSON and figures. The folders hold test data."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.base.errors import UserError
from graphmill.monitor.columns import COLUMNS as MONITOR_COLUMNS
from graphmill.record.documents import Outcome
from graphmill.record.metrics import write_metrics
from graphmill.record.provenance import Provenance
from graphmill.record.run_folder import RunFolder
from graphmill.report.latex import build_tex, find_latex
from graphmill.report.measured_cells import Spread
from graphmill.report.scaling import write_scaling
from graphmill.report.scaling_points import STRONG_COLUMNS, WEAK_COLUMNS
from graphmill.spec.optimizer import AdamSpec
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.spec.study import Cell, Study, expand, load_cell
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.node_classification.page import GraphInfo

ONE_THREAD = {"train.threads": 1, "train.epochs": 3, "train.device": "cpu", "train.batch_size": 64}
STRONG = {"kind": "strong", "ranks": [1, 2, 4], "global_batch": 64, "repeats": 2}
WEAK = {"kind": "weak", "ranks": [1, 2, 4], "train_per_rank": 1024, "repeats": 2}
FACTS = GraphInfo(
    name="test-data", path="/nowhere/toy", checksum="0" * 16, synthetic=True, num_nodes=9000, num_edges=400,
    num_features=8, num_classes=3, num_train=4096, has_sparse_features=True,
)  # fmt: skip


def study(**keys) -> Study:
    taken = {"train.batch_size"} if keys.get("kind") == "strong" else set(keys.get("vary", ()))
    shared = {key: value for key, value in ONE_THREAD.items() if key not in taken}
    return Study(**{"name": "s", "experiment": "debian-packages-sage", "set": shared, **keys})


def provenance(num_cores: int, cpu: str) -> Provenance:
    return Provenance(
        time_utc="2026-01-01T00:00:00+00:00", command=(), code=None, workdir=None, versions={}, hostname="h",
        cpu_model=cpu, num_cores=num_cores, memory_bytes=1, gpus=(), load_average=(0, 0, 0), dataset_checksum="0" * 16,
        synthetic=True,
    )  # fmt: skip


def make_run(
    asked: Study, cell: Cell, logs: Path, *, epoch_s=None, status="done", cores=2, cpu="test", others=None, changes=None
) -> RunFolder:
    """A run as it would leave its folder: three epochs, the first of which takes twice as long."""
    experiment = load_cell(asked, cell)
    plan = resolve(
        experiment, machine=MachineInfo(num_cores=2, num_gpus=0), dataset=FACTS, run_id=f"{asked.name}/{cell.name}"
    )
    plan = plan.model_copy(update=changes or {})
    folder = RunFolder.create(plan, logs)
    folder.write_provenance(provenance(cores, cpu))
    seconds = (8.0 / plan.ranks + 2.0) if epoch_s is None else epoch_s
    rows = [
        {
            "run_id": plan.run_id, "epoch": epoch, "epoch_steps": plan.calendar.steps_in(0), "world_size": plan.ranks,
            "seed": plan.seed, "attempt": 1, "loss": 1.0 / epoch, "val_loss": 0.5, "val_micro_f1": 0.8,
            "num_seeds": plan.dataset.num_train, "train_s": seconds * (2 if epoch == 1 else 1),
            "seeds_per_s": plan.dataset.num_train / seconds, "compute_s": 0.7 * seconds, "wait_s": 0.1 * seconds,
            "sync_s": 0.1 * seconds, "eval_s": 0.5, "peak_rss_mib": 100.0,
        }
        for epoch in (1, 2, 3)
    ]  # fmt: skip
    write_metrics(folder.metrics_path, rows, NODES.columns)
    outcome = Outcome(
        status=status, exit_code=0 if status == "done" else 1, epochs=3, steps_per_rank=1, wall_s=1.0,
        message="" if status == "done" else "rank 1 was killed",
    )  # fmt: skip
    folder.write_outcome(outcome)
    if others is not None:
        write_monitor(folder, others)
    return folder


def write_monitor(folder: RunFolder, others: float) -> None:
    lines = [",".join(MONITOR_COLUMNS)]
    for second in range(5):
        for subject, cores in (("host", 1.0 + others), ("rank_0", 1.0)):
            cells = {"time": 100 + second, "subject": subject, "cores": cores}
            lines.append(",".join(str(cells.get(name, "")) for name in MONITOR_COLUMNS))
    folder.monitor_path("h").parent.mkdir()
    folder.monitor_path("h").write_text("\n".join(lines) + "\n")


def make_all(asked: Study, logs: Path, **keys) -> None:
    for cell in expand(asked):
        make_run(asked, cell, logs, **keys)


def write(asked: Study | Path, tmp_path: Path, **keys):
    return write_scaling(asked, logs_root=tmp_path / "logs", out=tmp_path / "out", **keys)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def strong(tmp_path_factory) -> SimpleNamespace:
    """A study that was written once, in `folder`; who writes it again does so elsewhere, or the same bytes."""
    asked, folder = study(**STRONG), tmp_path_factory.mktemp("strong")
    make_all(asked, folder / "logs")
    return SimpleNamespace(study=asked, folder=folder, written=write(asked, folder))


@pytest.fixture
def _without_images(monkeypatch) -> None:
    """Most of the time is that of matplotlib, and these tests look at numbers."""
    monkeypatch.setattr("graphmill.report.draw.draw_chart", lambda *_: [])


def test_a_strong_study_in_numbers(strong):
    rows = read(strong.written.csv)
    header = tuple("val_micro_f1" if name == "MEASURE" else name for name in STRONG_COLUMNS)
    assert tuple(rows[0])[: len(header)] == header
    assert [row["num_nodes"] for row in rows] == ["1", "2", "4"]
    assert [float(row["epoch_time_sec"]) for row in rows] == [10, 6, 4], "the first epoch takes twice as long"
    assert [float(row["first_epoch_time_sec"]) for row in rows] == [20, 12, 8]
    assert [float(row["speedup"]) for row in rows] == pytest.approx([1, 10 / 6, 2.5])
    assert [float(row["efficiency"]) for row in rows] == pytest.approx([1, 10 / 12, 0.625])
    assert [float(row["ideal_speedup"]) for row in rows] == [1, 2, 4]
    assert [row["oversubscribed"] for row in rows] == ["false", "false", "true"]
    assert [float(row["karp_flatt"]) for row in rows[1:]] == pytest.approx([0.2, 0.2])
    assert strong.written.result.fit.serial_share == pytest.approx(0.2)
    assert strong.written.result.fit.residual == pytest.approx(0, abs=1e-9)
    assert {row["num_nodes_counts"] for row in rows} == {"ranks"}


@pytest.mark.usefixtures("_without_images")
def test_a_weak_study_in_numbers(tmp_path):
    asked = study(**WEAK)
    for cell in expand(asked):
        ranks = int(cell.name.split("-")[1][0])
        make_run(asked, cell, tmp_path / "logs", epoch_s={1: 10.0, 2: 10.0, 4: 12.5}[ranks])
    written = write(asked, tmp_path)
    rows = read(written.csv)
    assert tuple(rows[0])[: len(WEAK_COLUMNS)] == WEAK_COLUMNS
    assert [float(row["time_ratio"]) for row in rows] == [1, 1, 1.25]
    assert [float(row["efficiency"]) for row in rows] == pytest.approx([1, 1, 0.8])
    assert [float(row["total_samples"]) for row in rows] == [1024, 2048, 4096]
    assert {float(row["samples_per_node"]) for row in rows} == {1024}
    assert written.result.fit.law == "gustafson"


@pytest.mark.usefixtures("_without_images")
def test_efficiency_is_not_capped(tmp_path):
    asked = study(**{**STRONG, "ranks": [1, 2]})
    for cell in expand(asked):
        make_run(asked, cell, tmp_path / "logs", epoch_s=4.0 if "ranks-2" in cell.name else 10.0)
    assert float(read(write(asked, tmp_path).csv)[1]["efficiency"]) == pytest.approx(1.25)


def test_strong_and_weak_do_not_overwrite_each_other(strong, tmp_path):
    asked = study(**{**WEAK, "name": "w"})
    make_all(asked, tmp_path / "logs")
    weak = write_scaling(asked, logs_root=tmp_path / "logs", out=strong.folder / "out")
    both = {*strong.written.images, *weak.images, strong.written.csv, weak.csv, strong.written.json, weak.json}
    assert len(both) == 24
    assert all(path.stat().st_size for path in both)
    assert strong.written.json.name == "strong_scaling_full.json"


@pytest.mark.usefixtures("_without_images")
def test_the_spread_is_over_repeats(tmp_path):
    asked = study(**{**STRONG, "ranks": [1, 2]})
    for cell in expand(asked):
        make_run(asked, cell, tmp_path / "logs", epoch_s=9.0 if cell.name.endswith("seed-1") else 11.0)
    point = write(asked, tmp_path).result.points[1]
    assert point.epoch_s == Spread(10.0, pytest.approx(2**0.5), 2)
    assert point.speedup.sd == pytest.approx(0.2), "the relative deviations of both times, squared and added"


@pytest.mark.usefixtures("_without_images")
def test_a_folder_of_runs_tells_its_kind(strong, tmp_path):
    written = write(strong.folder / "logs" / "s", tmp_path)
    assert (written.kind, written.rows) == ("strong", strong.written.rows)


@pytest.mark.usefixtures("_without_images")
def test_a_failed_cell_is_a_failed_cell(tmp_path):
    asked = study(**STRONG)
    cells = expand(asked)
    for cell in cells:
        status = "failed" if cell.name == "ranks-2__seed-1" else "done"
        if cell.name not in ("ranks-4__seed-1", "ranks-4__seed-2"):
            make_run(asked, cell, tmp_path / "logs", status=status)
    written = write(asked, tmp_path)
    rows = read(written.csv)
    assert [row["failed"] for row in rows] == ["0", "1", "2"]
    assert [row["repeats"] for row in rows] == ["2", "1", "0"]
    assert rows[2]["num_nodes"] == "4"
    assert rows[2]["speedup"] == ""
    told = " ".join(written.notes)
    assert "ranks-2__seed-1 is not counted: failed: rank 1 was killed" in told
    assert "ranks-4__seed-2 is not counted: it was not run" in told
    for path in written.tex:
        assert "1 of 2" in path.read_text()
        assert "2 of 2" in path.read_text()
        assert "runs that failed" in path.read_text()


def test_without_the_smallest_size_there_is_nothing_to_compare_with(tmp_path):
    asked = study(**STRONG)
    for cell in expand(asked):
        make_run(asked, cell, tmp_path / "logs", status="failed" if "ranks-1" in cell.name else "done")
    with pytest.raises(UserError, match=r"no run of the smallest size can be counted.*rank 1 was killed"):
        write(asked, tmp_path)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (
            {"changes": {"optimizer": AdamSpec(lr=0.5, weight_decay=0.01)}},
            "differ in more than the studied keys: optimizer.lr is 0.003 in the first and 0.5",
        ),
        ({"changes": {"threads": 2}}, "threads is 1 in the first and 2 in the second"),
        ({"cpu": "another"}, "the machine is test with 2 cores in the first and another with 2 cores in the second"),
        ({"changes": {"batch_size": 8}}, "share the global batch, but it is 64 in"),
    ],
)
def test_cells_that_differ_in_more_are_not_plotted(tmp_path, odd, message):
    asked = study(**STRONG)
    for cell in expand(asked):
        make_run(asked, cell, tmp_path / "logs", **(odd if cell.name == "ranks-4__seed-2" else {}))
    with pytest.raises(UserError) as caught:
        write(asked, tmp_path)
    assert message in caught.value.message
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("_without_images")
def test_the_machine_is_told_from_the_program(tmp_path):
    asked = study(**STRONG)
    make_all(asked, tmp_path / "logs", others=0.9)
    written = write(asked, tmp_path)
    told = " ".join(written.notes)
    assert "oversubscribed at 4: more threads than the 2 cores of a host" in told
    assert "other processes kept up to 0.9 cores busy" in told
    speedup = next(path for path in written.tex if path.stem == "strong_speedup").read_text()
    for words in ("measured, more threads than cores", "these cores at best", "others kept up to 0.9 cores busy"):
        assert words in speedup
    assert written.result.fit_own_cores.num_points == 2


def test_a_sweep_and_a_study_that_was_not_run_are_refused(tmp_path):
    with pytest.raises(UserError, match="no cell of s was run yet"):
        write(study(**STRONG), tmp_path)
    asked = study(vary={"train.optimizer.lr": [0.1, 0.2]})
    make_all(asked, tmp_path / "logs")
    with pytest.raises(UserError, match="is a sweep"):
        write(asked, tmp_path)


@pytest.mark.usefixtures("_without_images")
def test_epochs_that_warm_up_or_are_cut_short_do_not_count(tmp_path):
    asked = study(**{**STRONG, "ranks": [1, 2], "repeats": None})
    for cell in expand(asked):
        folder = make_run(asked, cell, tmp_path / "logs", epoch_s=10.0)
        rows = read(folder.metrics_path)
        resumed = {**rows[-1], "epoch": "4", "attempt": "2", "train_s": "77"}
        short = {**rows[-1], "epoch": "5", "attempt": "2", "train_s": "1", "epoch_steps": "3"}
        write_metrics(folder.metrics_path, [*rows, resumed, short], NODES.columns)
    assert [float(row["epoch_time_sec"]) for row in write(asked, tmp_path).rows] == [10, 10]


def test_a_sensitivity_study(tmp_path):
    asked = study(kind="sensitivity", vary={"train.batch_size": [32, 64], "train.prefetch": [0, 2]}, repeats=2)
    for cell in expand(asked):
        speed = (2.0 if "batch_size-64" in cell.name else 1.0) * (1.1 if "prefetch-2" in cell.name else 1.0)
        status = "failed" if cell.name == "batch_size-64__prefetch-2__seed-2" else "done"
        make_run(asked, cell, tmp_path / "logs", epoch_s=8.0 / speed, status=status)
    written = write(asked, tmp_path)
    rows = read(written.csv)
    assert [(row["train.batch_size"], row["train.prefetch"]) for row in rows] == [
        ("32", "0"), ("32", "2"), ("64", "0"), ("64", "2"),
    ]  # fmt: skip
    assert [row["failed"] for row in rows] == ["0", "0", "0", "1"]
    effects = {each["key"]: each for each in json.loads(written.json.read_text())["effects"]}
    assert list(effects) == ["train.batch_size", "train.prefetch"], "the strongest first"
    assert effects["train.batch_size"]["ratios"] == {"32": 1.0, "64": pytest.approx(2.0)}
    assert effects["train.prefetch"]["best_over_worst"] == pytest.approx(1.1)


@pytest.mark.slow  # of figures, test_figures.py says so
def test_same_runs_same_bytes(strong):
    before = {path: path.read_bytes() for path in (strong.written.csv, strong.written.json, *strong.written.images)}
    write(strong.study, strong.folder)
    for path, content in before.items():
        assert path.read_bytes() == content


@pytest.mark.slow
def test_the_tex_compiles(strong, tmp_path):
    if not find_latex():
        pytest.skip("no LaTeX here")
    for path in strong.written.tex:
        assert build_tex(path, tmp_path / "build").stat().st_size > 1000


def test_a_tex_file_of_somebody_elses_is_left_alone(strong, tmp_path):
    theirs = tmp_path / strong.written.tex[0].relative_to(strong.folder)
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine\n")
    with pytest.raises(UserError, match="was not written by graphmill"):
        write_scaling(strong.study, logs_root=strong.folder / "logs", out=tmp_path / "out")
    assert theirs.read_text() == "mine\n"
