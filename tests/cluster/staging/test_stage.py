"""Staging with real files and processes: copied, verified, found again, and never half there."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from second_user import UID, as_second_user
from waiting import HANG_S

from graphmill.base.errors import UserError
from graphmill.cluster.staging import copying, lock
from graphmill.cluster.staging import stage as staging
from graphmill.cluster.staging.dataset import read_dataset
from graphmill.cluster.staging.lock import only_copier
from graphmill.cluster.staging.stage import StagingError, main, stage, stage_for_run
from graphmill.graph.header import ArrayRecord, Header, seal, write_metadata
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import MARK_FILE, FileState, read_mark, read_staged, staged_store_path, write_mark
from graphmill.spec.plan import Plan


def write_dataset(folder: Path, arrays: dict[str, bytes], *, name: str = "toy") -> Path:
    folder.mkdir(parents=True)
    records = {}
    for array, content in arrays.items():
        (folder / f"{array}.npy").write_bytes(content)
        digest = xxhash.xxh3_128(content).hexdigest()
        records[array] = ArrayRecord(dtype="int8", shape=(len(content),), bytes=len(content), xxh3=digest)
    write_metadata(
        folder, seal(Header(kind="of a task that staging does not know", name=name, synthetic=True, arrays=records))
    )
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data" / "toy", {"x": os.urandom(200_000), "y": os.urandom(17), "z": b""})


def run_on(dataset: Path, plan: Plan, logs_root: Path) -> RunFolder:
    facts = plan.dataset.model_copy(update={"path": str(dataset), "checksum": read_dataset(dataset).checksum})
    task = plan.task.model_copy(update={"dataset": facts})
    return RunFolder.create(plan.model_copy(update={"task": task}), logs_root)


@pytest.fixture
def run(tmp_path: Path, dataset: Path, make_plan) -> RunFolder:
    return run_on(dataset, make_plan(), tmp_path / "logs")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_copy_is_equal_found_again_and_found_by_the_ranks(run: RunFolder, dataset: Path, tmp_path: Path):
    root = tmp_path / "fast"
    first = stage_for_run(run, root)
    second = stage_for_run(run, root)
    assert (first.outcome, second.outcome) == ("copied", "reused")
    assert content(Path(first.to)) == content(dataset)
    environ = {"GRAPHMILL_STAGED_ROOT": str(root)}
    assert staged_store_path(run.read_plan(), environ, run) == Path(first.to)
    assert staged_store_path(run.read_plan(), {}, run) is None
    assert read_staged(run) == [second]
    assert first.bytes == read_dataset(dataset).bytes
    assert first.mib_per_s > 0


def test_a_real_dataset_opens_from_its_copy(tmp_path: Path):
    import numpy as np

    from graphmill.graph.features import DenseFeatures
    from graphmill.tasks.node_classification.data.labelled import LabelledGraph
    from graphmill.tasks.node_classification.data.store import LabelledGraphStore, write_store

    raw = LabelledGraph(
        name="ring", source="test", synthetic=True, split_note="test",
        edge_index=np.array([[0, 1, 2], [1, 2, 0]]), features=DenseFeatures(np.eye(3, dtype=np.float32), "float32"),
        labels=np.array([0, 1, 0]), class_names=(), split=np.array([0, 1, 2], dtype=np.int8),
    )  # fmt: skip
    write_store(raw, tmp_path / "ring")
    staged = stage(read_dataset(tmp_path / "ring"), tmp_path / "fast")
    LabelledGraphStore.open(Path(staged.to)).verify()


def flip(file: Path) -> None:
    """Another bit, the same size and time of change."""
    stat = file.stat()
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    "damage",
    [flip, Path.unlink, lambda file: os.truncate(file, 100), lambda file: file.with_name(MARK_FILE).unlink()],
)
def test_a_damaged_copy_is_never_trained_on_and_is_made_anew(run: RunFolder, dataset: Path, tmp_path, caplog, damage):
    root = tmp_path / "fast"
    copy = Path(stage_for_run(run, root).to)
    damage(copy / "x.npy")
    with pytest.raises(UserError, match=r"changed|no verified copy|cannot be read"):
        staged_store_path(run.read_plan(), {"GRAPHMILL_STAGED_ROOT": str(root)}, run)
    assert stage_for_run(run, root).outcome == "copied"
    assert caplog.messages
    assert content(copy) == content(dataset)


def test_a_copy_that_lacks_what_the_dataset_has_now_is_made_anew(run: RunFolder, dataset: Path, tmp_path: Path):
    root = tmp_path / "fast"
    copy = Path(stage_for_run(run, root).to)
    (dataset / "notes.txt").write_text("beside the arrays, which metadata.json names")
    assert stage_for_run(run, root).outcome == "copied"
    assert content(copy) == content(dataset)
    assert stage_for_run(run, root).outcome == "reused"


def rot(copy: Path) -> None:
    """A bit that the disk lost: nothing the system says of the file has changed."""
    flip(copy / "x.npy")
    mark = read_mark(copy)
    states = {**mark.files, "x.npy": FileState.of(copy / "x.npy")}
    write_mark(copy, mark.model_copy(update={"files": states}))


def test_a_bit_that_the_disk_lost_is_found_by_reading(
    run: RunFolder, dataset: Path, tmp_path: Path, caplog, monkeypatch
):
    root = tmp_path / "fast"
    copy = Path(stage_for_run(run, root).to)
    rot(copy)
    monkeypatch.setattr(staging, "ALWAYS_READ_BYTES", 0)  # as if the dataset were large
    assert stage_for_run(run, root).verified == "sizes and times"
    assert stage_for_run(run, root, verify=True).outcome == "copied"
    rot(copy)
    monkeypatch.undo()
    assert stage_for_run(run, root).outcome == "copied"
    assert caplog.records[-1].levelname == "WARNING"
    assert content(copy) == content(dataset)


def test_a_copy_that_was_only_touched_is_read_and_used(run: RunFolder, tmp_path: Path):
    root = tmp_path / "fast"
    copy = Path(stage_for_run(run, root).to)
    (copy / "x.npy").touch()
    assert stage_for_run(run, root).outcome == "reused"
    assert staged_store_path(run.read_plan(), {"GRAPHMILL_STAGED_ROOT": str(root)}, run) == copy


def test_a_damaged_dataset_is_the_persons_to_mend(run: RunFolder, dataset: Path, tmp_path: Path):
    flip(dataset / "x.npy")
    with pytest.raises(UserError, match="its checksum is"):
        stage_for_run(run, tmp_path / "fast", on_failure="use_shared")
    assert not [path for path in (tmp_path / "fast").iterdir() if not path.name.endswith(".lock")]
    (dataset / "y.npy").unlink()
    with pytest.raises(UserError, match=r"y\.npy: missing"):
        read_dataset(dataset)


def test_another_dataset_than_the_planned_one_is_refused(run: RunFolder, dataset: Path, tmp_path: Path):
    shutil.rmtree(dataset)
    write_dataset(dataset, {"x": b"other"})
    with pytest.raises(UserError, match="planned for"):
        stage_for_run(run, tmp_path / "fast")


def test_via_scratch(run: RunFolder, dataset: Path, tmp_path: Path):
    staged = stage_for_run(run, tmp_path / "local", via=tmp_path / "scratch")
    assert Path(staged.source).parent == tmp_path / "scratch"
    assert content(Path(staged.to)) == content(dataset)


def test_what_cannot_be_copied_fails_the_job_or_is_said_loudly(run: RunFolder, tmp_path: Path, capfd, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    arguments = [str(run.path), "--to", str(tmp_path / "file")]
    assert main(arguments) == 1
    assert "error: " in capfd.readouterr().err
    assert not read_staged(run)
    assert main([*arguments, "--on-failure=use_shared"]) == 0
    assert capfd.readouterr().err.count("warning: ") == 2
    assert [staged.outcome for staged in read_staged(run)] == ["use_shared"]
    assert staged_store_path(run.read_plan(), {"GRAPHMILL_STAGED_ROOT": str(tmp_path / "file")}, run) is None


def test_too_small_a_disk_is_refused_with_numbers(run: RunFolder, tmp_path: Path, source_environ):
    """A file system of 64 KiB, in a namespace of its own."""
    small = tmp_path / "small"
    small.mkdir()
    stage = f"exec {sys.executable} -m graphmill.cluster.staging.stage {run.path}"
    inside = f"mount -t tmpfs -o size=64k none {small} && {stage}"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{inside} --to {small}; "]
    if subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", small], check=False).returncode:
        pytest.skip("no user namespaces here, to mount a small file system in")
    done = subprocess.run(command, capture_output=True, text=True, env=source_environ, timeout=HANG_S, check=False)
    assert done.returncode == 1, done.stderr
    assert "has 0.1 MiB free" in done.stderr
    assert "→" in done.stderr


def started(run: RunFolder, root: Path, environ: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "graphmill.cluster.staging.stage", str(run.path), "--to", str(root)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)


def test_of_jobs_that_come_together_one_copies(run: RunFolder, dataset: Path, tmp_path: Path, source_environ):
    jobs = [started(run, tmp_path / "fast", source_environ) for _ in range(4)]
    texts = [job.communicate(timeout=HANG_S)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 4, texts
    assert sum("copied in" in text for text in texts) == 1
    (copy,) = [path for path in (tmp_path / "fast").iterdir() if path.is_dir()]
    assert content(copy) == content(dataset)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_copier_leaves_nothing_half_written(tmp_path: Path, make_plan, source_environ, number: signal.Signals):
    big = tmp_path / "data" / "big"
    write_dataset(big, {f"x{number}": bytes(16 << 20) for number in range(4)})
    run = run_on(big, make_plan(), tmp_path / "logs")
    root = tmp_path / "fast"
    job = started(run, root, source_environ)
    while job.poll() is None and not list(root.glob(".*.tmp/x*")):
        time.sleep(0.001)
    job.send_signal(number)
    job.wait(timeout=HANG_S)
    assert not [path for path in root.glob("[!.]*") if read_mark(path) is None]
    if number == signal.SIGTERM:
        assert not list(root.glob(".*.tmp"))
    staged = stage_for_run(run, root)
    assert content(Path(staged.to)) == content(big)
    assert not list(root.glob(".*.tmp"))


def test_a_holder_that_stands_still_is_not_waited_for(tmp_path: Path, source_environ, caplog):
    """A stopped process keeps its lock; another goes ahead, for the rename keeps both copies whole."""
    target = tmp_path / "copy"
    program = (
        "import sys, time; from pathlib import Path; from graphmill.cluster.staging.lock import only_copier\n"
        "with only_copier(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(target)], stdout=subprocess.PIPE, text=True, env=source_environ
    )
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGSTOP)
    with only_copier(target, stale_s=0.5):
        assert "made no progress" in caplog.messages[-1]
    holder.kill()
    holder.wait()
    with only_copier(target):  # a dead holder's lock is nobody's
        assert len(caplog.messages) == 2


def test_a_holder_that_gives_signs_of_life_is_waited_for_however_long(tmp_path: Path, monkeypatch, caplog):
    held = (tmp_path / ".copy.lock").open("a+")
    fcntl.flock(held, fcntl.LOCK_EX)
    now_s = 0.0

    def sleep(_: float) -> None:
        nonlocal now_s
        now_s += lock.STALE_S / 2
        if now_s > 10 * lock.STALE_S:
            held.close()
        else:
            os.utime(held.fileno(), ns=(0, int(now_s * 1e9)))

    monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    with only_copier(tmp_path / "copy"):
        assert held.closed
    assert not any("no progress" in message for message in caplog.messages)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), max_size=6), block=st.integers(1, 100), threads=st.integers(1, 4))
def test_copies_are_equal_whatever_the_sizes(tmp_path_factory, sizes, block, threads):
    folder = tmp_path_factory.mktemp("copy")
    names = {f"f{number}": size for number, size in enumerate(sizes)}
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    for name, size in names.items():
        (folder / "a" / name).write_bytes(os.urandom(size))
    moved: list[int] = []
    before, copying.BLOCK_BYTES = copying.BLOCK_BYTES, block
    try:
        copying.copy_files(names, folder / "a", folder / "b", threads=threads, moved=moved.append)
    finally:
        copying.BLOCK_BYTES = before
    assert content(folder / "a") == content(folder / "b")
    assert sum(moved) == sum(sizes)


def test_threads_of_one_process_copy_once(dataset: Path, tmp_path: Path):
    with ThreadPoolExecutor(4) as pool:
        staged = list(pool.map(lambda _: stage(read_dataset(dataset), tmp_path / "fast"), range(4)))
    assert sorted(each.outcome for each in staged) == ["copied", "reused", "reused", "reused"]


def test_two_users_stage_on_one_host(shared_place):
    dataset = write_dataset(shared_place / "data" / "toy", {"x": b"abc"})
    environ = {"TMPDIR": str(shared_place)}

    def staged() -> None:
        stage(read_dataset(dataset), staging.staged_root(None, environ))

    staged()
    as_second_user(staged)
    roots = sorted(path for path in shared_place.iterdir() if path.name != "data")
    assert [path.stat().st_uid for path in roots] == [0, UID]
    assert [path.stat().st_mode & 0o777 for path in roots] == [0o700, 0o700]


def test_a_folder_that_another_user_made_under_our_name_is_not_used(shared_place):
    dataset = write_dataset(shared_place / "data" / "toy", {"x": b"abc"})
    root = staging.staged_root(None, {"TMPDIR": str(shared_place)})
    as_second_user(root.mkdir)
    with pytest.raises(StagingError, match="another user"):
        stage(read_dataset(dataset), root)


@pytest.mark.parametrize(("how", "says"), [("a link to a folder of ours", "is a link"), ("open to all", "others may")])
def test_a_folder_under_our_name_is_ours_alone(dataset: Path, tmp_path, how, says):
    root = staging.staged_root(None, {"TMPDIR": str(tmp_path)})
    mine = tmp_path / "mine"
    mine.mkdir()
    if how == "open to all":
        root.mkdir()
        root.chmod(0o777)
    else:
        root.symlink_to(mine)
    with pytest.raises(StagingError, match=says):
        stage(read_dataset(dataset), root)
    assert not list(mine.iterdir())
    assert how != "open to all" or not list(root.iterdir())


def test_a_link_in_the_place_of_the_lock_is_not_followed(dataset: Path, tmp_path):
    """In a folder where others may write it could lead to any file of ours, which would be cut and written."""
    precious, root = tmp_path / "precious", tmp_path / "staged"
    precious.write_text("kept")
    target = read_dataset(dataset).copy_in(root)
    root.mkdir()
    (root / f".{target.name}.lock").symlink_to(precious)
    with pytest.raises(StagingError, match="symbolic link"):
        stage(read_dataset(dataset), root)
    assert precious.read_text() == "kept"


def test_a_folder_that_may_not_be_written_is_said(dataset: Path):
    with pytest.raises(StagingError, match="/proc"):
        stage(read_dataset(dataset), Path("/proc/nowhere"))
