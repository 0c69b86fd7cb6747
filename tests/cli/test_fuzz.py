"""Malformed requests through the real commands: exit status 2, one sentence, no traceback, no hang, nothing written."""

import subprocess
import sys

import pytest
from waiting import HANG_S

EXPERIMENTS = [
    "", " ", "\n\n", "# nothing", "null", "~", "7", "words", "- a\n- b", "[1, 2]", "{", "}", "{a: [}", "a: b: c",
    "a: 'x", "name: a\nname: b", "a: &x 1\nb: *x", "a: &a [*a]", "<<: {a: 1}", "1: 2", "? [a]\n: b", "a:\n\tb: 1",
    "--- 1\n--- 2", "%TAG ! x", "name: !!python/object/apply:os.system [ls]", "name: !!binary aGk=",
    "train: !!set {a}", "train: {lr: .nan}", "train: {lr: .inf}", "train: {lr: " + "9" * 10_000 + "}",
    'name: "\\ud800"', "name: \x07", "x: " + "y" * (1 << 20), "a: " + "[" * 1000, "{a: " * 10_000,
    "a: [" + "0," * 50_000 + "]", "train: {epochs: -1}", "train: {epochs: 0}", "train: {epochs: 1.5}",
    "train: {epochs: yes}", "train: {epochs: true}", "train: {epochs: [1]}", "train: {epochs: {a: 1}}",
    "train: {epochs: 'three'}", "train: 3", "train: []", "train: null", "train: {ranks: 0}", "train: {ranks: many}",
    "train: {ranks: 1.0}", "train: {num_neighbors: []}", "train: {num_neighbors: [0]}",
    "train: {num_neighbors: [-2]}", "train: {num_neighbors: 5}", "train: {num_neighbors: [[1]]}", "train: {seed: -1}",
    "train: {seed: 9223372036854775808}", "train: {sync: 4}", "train: {sync: {scheme: x}}",
    "train: {sync: {scheme: 3}}", "train: {sync: {scheme: [a]}}", "train: {sync: {scheme: null}}",
    "train: {sync: {every: 0}}", "train: {sync: {outer_lr: 1}}", "train: {sync: {scheme: diloco, outer_lr: 0}}",
    "train: {sync: {scheme: diloco, outer_momentum: 1}}", "train: {precision: fp8}", "train: {device: tpu}",
    "train: {backend: mpi}", "train: {checkpoint: often}", "train: {lr: ''}", "model: sage", "model: {kind: 3}",
    "model: {kind: custom}", "model: {kind: custom, target: 3}", "model: {dropout: 1}", "model: {dropout: -0.1}",
    "model: {num_layers: 0}", "model: {hidden_channels: 1e2}", "model: {options: {a: 1}}", "dataset: cora",
    "dataset: {name: 3}", "dataset: {name: [a]}", "dataset: {undirected: maybe}", "dataset: {features: pca}",
    "task: regression", "name: ''", "name: ../x", "name: a b", "name: é", "nmae: a", "zzz: 1",
    "vary: {train.seed: [1]}", "train: {epochs: 1, max_steps: 0}",
    "dataset: {name: no-such-dataset}\ntrain: {epochs: 1}", "dataset: {name: ../../etc}\ntrain: {epochs: 1}",
    "dataset: {name: /}\ntrain: {epochs: 1}", "dataset: {name: ''}\ntrain: {epochs: 1}",
    "dataset: {name: synthetic/sbm}\ntrain: {epochs: 1, num_neighbors: [3]}",
    "dataset: {name: synthetic/sbm}\ntrain: {max_steps: 3, ranks: 2}",
    "dataset: {name: synthetic/sbm}\ntrain: {epochs: 1, device: cpu, backend: nccl}",
    "dataset: {name: synthetic/sbm, features: binary}\ntrain: {epochs: 1}",
]  # fmt: skip

BYTES = [
    b"\x00",
    b"\xff\xfe\x00a",
    b"\x80abc",
    bytes(range(256)),
    b"\x89PNG\r\n\x1a\n",
    b"PK\x03\x04",
    "name: a".encode("utf-16"),
]

OVERRIDES = [
    "", "=", "x", "=1", "a=", "train.seed", "train.seed=", "train..lr=1", ".lr=1", "train.=1", "train.seed =x",
    "train.seed=[", "train.seed={", "train.seed=*a", "train.seed=&a", "train.seed=!!x 1", "train.seed=fast",
    "train.seed=[1]", "train=1", "train={}x", "name=a/b", "name=", "trian.epochs=1", "train.epochs.x=1",
    "model.kind=gcn", "model.target=a.B", "train.sync.scheme=sync", "train.sync=1", "train.sync.outer_lr=1",
    "train.num_neighbors=25",
    "train.num_neighbors=[1,", "train.seed=1e400", "train.seed=0x10", "train.seed=\x00", "train.seed=\u2028",
    "-O", "--", "train.epochs=99999999999999999999999999",
]  # fmt: skip

COMMANDS = [
    ["plan", "no-such-recipe"], ["plan", "no/such/file.yaml"], ["plan", "."], ["plan", "/dev/null"],
    ["plan", "/dev/zero"], ["plan", "a\0b"], ["plan", "x" * 5000], ["plan", "toy.yaml", "extra"],
    ["plan", "toy.yaml", "--ranks", "x"], ["plan", "toy.yaml", "--ranks", "0"], ["plan", "toy.yaml", "--ranks", "-3"],
    ["plan", "toy.yaml", "--rnaks", "2"], ["plan", "toy.yaml", "--ranks", "2", "-O", "train.ranks=3"],
    ["plan", "toy.yaml", "-O"], ["plan", "toy.yaml", "--bach_size", "3"], ["plan", "toy.yaml", "--batch_size"],
    ["plan", "toy.yaml", "--batch_size", "many"], ["plan", "toy.yaml", "--num_neighbors"],
    ["plan", "toy.yaml", "--num_neighbors", "a"], ["plan", "toy.yaml", "--sync_scheme", "local-sgd"],
    ["plan", "toy.yaml", "--sync_every", "0"], ["plan", "toy.yaml", "--max_steps", "1.5"],
    ["plan", "toy.yaml", "--lr", "1", "--lr", "2"], ["train", "toy.yaml", "--run-id", "../x"],
    ["train", "toy.yaml", "--run-id", ""], ["train", "toy.yaml", "--run-id", "a/b/c/d"],
    ["train", "toy.yaml", "--resume"], ["train", "--resume"], ["train", "--resume", "--run-id", "none"],
    ["train", "toy.yaml", "--logs-root", "toy.yaml"], ["train", "toy.yaml", "--dataset-root", "toy.yaml"],
    ["evaluate"], ["evaluate", "none"], ["evaluate", "none", "--split", "all"], ["inspect", "none"], ["inspect"],
    ["inspect", "a\0b"], ["verify", "none"], ["verify"], ["prepare"], ["prepare", "no-such"], ["prepare", "../x"],
    ["prepare", "synthetic/sbm", "-o", "x"], ["prepare", "synthetic/sbm", "--as", "new", "-o", "nodes=3"],
    ["prepare", "synthetic/sbm", "--as", "new", "-o", "num_nodes=many"],
    ["prepare", "planetoid/cora", "--from", "/nowhere"], ["prepare", "mine", "--from", "toy.yaml"],
    ["prepare", "planetoid/cora", "--from", ".", "--feature-dtype", "int4"],
    ["datasets", "--dataset-root", "toy.yaml"], ["study"], ["study", "rn"], ["study", "run"],
    ["study", "run", "none"], ["study", "run", "toy.yaml"], ["study", "list", "toy.yaml"],
    ["merge", "--input-root", "none"], ["merge", "--output", "x.txt"], ["pareto", "--metrics", "none.csv"],
    ["pareto", "--metrics", "toy.yaml"], ["figures", "--metrics", "none.csv"], ["figures", "--only", "pie"],
    ["bench", "no-such"], ["trian"], ["--nonsense"], ["train", "--nonsense"], ["doctor", "extra"],
]  # fmt: skip


def assert_refused(result, folder, before) -> None:
    assert result.code == 2, result.out + result.err
    assert "Traceback" not in result.err
    ours = "\nerror: " in f"\n{result.err}"
    assert ours or "Error: " in result.err or "Usage: " in result.err
    if ours:
        assert "\n  → " in result.err, "what clashes, then what to type"
    assert sorted(folder.rglob("*")) == before, "nothing half-written stays"


@pytest.mark.parametrize("text", EXPERIMENTS, ids=range(len(EXPERIMENTS)))
def test_experiments(graphmill, toy, tmp_path, text):
    toy.write_text(text, errors="surrogatepass")
    assert_refused(graphmill("plan", "toy.yaml"), tmp_path, [toy])


@pytest.mark.parametrize("text", BYTES, ids=range(len(BYTES)))
def test_files_that_are_no_text(graphmill, toy, tmp_path, text):
    toy.write_bytes(text)
    assert_refused(graphmill("plan", "toy.yaml"), tmp_path, [toy])


@pytest.mark.parametrize("text", OVERRIDES, ids=range(len(OVERRIDES)))
def test_overrides(graphmill, toy, tmp_path, text):
    assert_refused(graphmill("plan", "toy.yaml", "-O", text), tmp_path, [toy])


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:50].replace("\0", "0"))
def test_command_lines(graphmill, toy, tmp_path, words):
    assert_refused(graphmill(*words), tmp_path, [toy])


@pytest.mark.parametrize("text", EXPERIMENTS[:30:3] + EXPERIMENTS[30::20])
def test_studies_too(graphmill, toy, tmp_path, text):
    toy.write_text(text, errors="surrogatepass")
    assert_refused(graphmill("study", "run", "toy.yaml"), tmp_path, [toy])


BY_PROCESSES = (
    ("plan", "toy.yaml", "-O", "train.seed=fast"),
    ("plan", "bomb.yaml"),
    ("plan", "deep.yaml"),
    ("plan", "binary.yaml"),
    ("plan", "/dev/zero"),
    ("plan", "pipe.yaml"),
    ("train", "toy.yaml", "--ranks", "0"),
    ("train", "--resume", "--run-id", "x"),
    ("train", "toy.yaml", "--bach_size", "4"),
    ("trian", "toy.yaml"),
    ("study", "run", "toy.yaml"),
    ("verify", "x"),
    ("prepare", "no-such"),
    ("inspect", "x"),
)
# What could crash or hang a process, and one that is refused by our code; the others are refused in-process above.
SPEAKING = (("plan", "bomb.yaml"), ("plan", "deep.yaml"), ("plan", "pipe.yaml"), ("trian", "toy.yaml"))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=" ".join(words), marks=[] if words in SPEAKING else [pytest.mark.slow])
        for words in BY_PROCESSES
    ],
)
def test_through_real_processes(toy, source_environ, tmp_path, words):
    import os
    from types import SimpleNamespace

    (tmp_path / "bomb.yaml").write_text("a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(100)))
    (tmp_path / "deep.yaml").write_text("[" * 500_000)
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)) * 100)
    os.mkfifo(tmp_path / "pipe.yaml")
    before = sorted(tmp_path.rglob("*"))
    program = "import sys; sys.argv[0] = 'graphmill'; from graphmill.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=source_environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert_refused(SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr), tmp_path, before)
