"""Faults: each kind at a random moment of short two-host runs on the dev cluster, then what became of run and job.

    python benchmarks/faults.py [--trials 10] [--only KIND …] [--clusters 3] [--slurmd-timeout 300] [--again]

Every trial is a line of DIR/trials.jsonl; a benchmark that was stopped goes on where it was (--again: anew). A trial
is as promised where the attempt ended as docs/howto/time-limit.md says, the run was done in the end (by itself, or by
`graphmill submit --resume` where a person is asked to), and its last checkpoint is that of an undisturbed run, bit for
bit. Times count from the fault; the ranks' `train.hang_timeout_s` is 15, and Slurm gives a silent host up after 300,
its own default. An attempt is over once its job does not run any more (one that has lost its driver runs on until Slurm
gives the host up), and its ranks are gone once none of them is left on any host.
"""

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from graphmill.monitor.ranks_here import rank_processes
from graphmill.verify.run import verify_run
from graphmill_devcluster import build, daemons, hosts
from graphmill_devcluster.description import LOCAL, Description, Host
from harness import Ledger, print_table, write_result
from slurm_runs import Run, append, claim, freeze, in_cluster, rows_of, state_of, wait_until

HANG_S = 15
NO_HANG_S = 60
SLURMD_TIMEOUT_S = 300  # Slurm's own default; a host's pings are a third of it apart
EXPERIMENT = f"""name: faults
dataset: {{name: synthetic/sbm}}
model: {{hidden_channels: 32}}
train:
  {{epochs: 16, batch_size: 50, num_neighbors: [5, 5], threads: 1, device: cpu, evaluate_every_epochs: 5,
   hang_timeout_s: {HANG_S}, sync: {{scheme: local_sgd, every: 2}}, checkpoint: {{every_steps: 20}}}}
slurm: {{site: devcluster, hosts: 2, time: 10, mem: 1000M}}
"""
STEPS = 288
EARLIEST, LATEST = 20, 180  # steps done when the fault comes


@dataclass
class Trial:
    """One run, and what is done to it."""

    number: int
    run: Run
    cluster: Description
    chance: random.Random
    struck: int | None = None  # the rank; None: they take turns
    mended: list[Callable[[], object]] = field(default_factory=list)  # to call once the attempt has ended

    @property
    def rank(self) -> int:
        """Whom it strikes. Rank 0 is on the job's first host, where its driver runs."""
        return self.number % self.run.num_ranks if self.struck is None else self.struck

    def names(self) -> list[str]:
        """The job's hosts, by rank."""
        words = ["squeue", "--noheader", f"--jobs={self.run.jobs[-1]}", "--format=%N"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        return subprocess.run(
            ["scontrol", "show", "hostnames", said], capture_output=True, text=True, check=True
        ).stdout.split()

    def host(self) -> Host:
        """Where the struck rank is."""
        return self.cluster.host(self.names()[self.rank])

    def process(self) -> psutil.Process:
        """The struck rank's process."""
        for pid, name in rank_processes(self.run.folder.path).items():
            if name == f"rank_{self.rank}":
                return psutil.Process(pid)
        raise RuntimeError("the rank's process is not there")

    def processes(self) -> list[psutil.Process]:
        """Of its ranks, on all hosts of this cluster."""
        return [psutil.Process(pid) for pid in rank_processes(self.run.folder.path)]

    def mend(self) -> None:
        """Undo what the fault left, last first."""
        while self.mended:
            self.mended.pop()()


def crash(trial: Trial) -> None:
    hosts.crash(trial.host())


def cut_short(trial: Trial) -> None:
    host = trial.host()
    hosts.cut(host)
    time.sleep(5)
    hosts.heal(host)


def cut(trial: Trial) -> None:
    hosts.cut(trial.host())


def kill(trial: Trial) -> None:
    trial.process().kill()


def stop(trial: Trial) -> None:
    trial.process().suspend()


def cancel(trial: Trial) -> None:
    subprocess.run(["scancel", trial.run.jobs[-1]], check=True)


def preempt(trial: Trial) -> None:
    everywhere = [f"--nodes={len(trial.cluster.hosts)}", "--exclusive", "--partition=normal", "--output=/dev/null"]
    subprocess.run(["sbatch", *everywhere, "--wrap=sleep 3"], check=True, capture_output=True)


def fill(trial: Trial) -> None:
    """The disk stays full until the job has ended."""
    filler = subprocess.Popen(
        [sys.executable, "-c", FILL, str(trial.run.folder.path.parent / "filler")], stdout=subprocess.DEVNULL
    )

    def empty() -> None:
        filler.kill()
        filler.wait()
        (trial.run.folder.path.parent / "filler").unlink(missing_ok=True)

    trial.mended.append(empty)


FILL = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as file:
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            time.sleep(0.002)
"""


def freeze_folder(trial: Trial) -> None:
    """Read-only on every host, for whatever is opened from now on."""
    run = str(trial.run.folder.path)
    for host in trial.cluster.hosts:
        hosts.run_on(host, read_only_command(run), check=True)
        trial.mended.append(partial(hosts.run_on, host, ["umount", "--lazy", run], check=True))


def read_only_command(folder: str) -> list[str]:
    """Binds a folder over itself and makes that read-only, which is refused as long as a write is under way there."""
    remount = 'for _ in $(seq 500); do mount -o remount,bind,ro "$1" && exit 0; sleep 0.01; done; exit 1'
    return ["sh", "-c", f'mount --bind "$1" "$1" && {{ {remount}; }} 2>/dev/null', "sh", folder]


def restart(trial: Trial) -> None:
    name, start = [("slurmctld", daemons.start_slurmctld), ("munged", daemons.start_munge)][trial.rank]
    daemons.stop(name)
    time.sleep(2)
    start()


def other_code(trial: Trial) -> None:
    """Before the job: one host gets a copy of one source file with one line more."""
    import graphmill.sync.schemes as victim

    changed = trial.run.folder.path.parent / f"changed-{trial.number}.py"
    changed.write_text(Path(victim.__file__).read_text() + "\nCHANGED = True\n")
    host = trial.cluster.hosts[trial.number % 2]
    hosts.run_on(host, ["mount", "--bind", str(changed), victim.__file__], check=True)
    trial.mended.append(lambda: hosts.run_on(host, ["umount", victim.__file__], check=True))


def corrupt(trial: Trial) -> None:
    """Before the job: one byte of a file that an earlier job staged on one host."""
    disk = trial.cluster.hosts[trial.number % 2].disk(LOCAL)
    files = sorted(path for path in disk.rglob("*.npy") if path.stat().st_size > 1000)
    path = trial.chance.choice(files)
    content = bytearray(path.read_bytes())
    content[trial.chance.randrange(200, len(content))] ^= 1 << trial.chance.randrange(8)
    times = path.stat()
    path.write_bytes(content)
    import os

    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a disk that returns other bytes


@dataclass(frozen=True)
class Kind:
    """A fault and what is promised."""

    words: str
    strike: Callable[[Trial], None]
    goes_on: str  # "unharmed" | "itself" | "resume"
    states: tuple[str, ...]  # what sacct may call the struck run of the job
    says: str = ""  # in the outcome or in the job's log
    before: bool = False  # it strikes before the job
    small: bool = False
    settings: tuple[str, ...] = ()
    loss: int | None = None  # most steps that may be lost; None: those since the last checkpoint
    rank: int | None = None  # whom it strikes; None: the ranks take turns
    is_unheard: bool = False  # the driver is lost or cut off: the job runs until Slurm gives its host up

    def most_lost(self) -> int:
        return 22 if self.loss is None else self.loss


KINDS = {
    "rank_killed": Kind("rank SIGKILLed", kill, "resume", ("FAILED",), "rank {rank} of {ranks} failed first on {host}"),
    "rank_stopped": Kind("rank SIGSTOPped", stop, "itself", ("REQUEUED",), "rank {rank} on {host}"),
    "scancel": Kind("scancel", cancel, "resume", ("CANCELLED",)),
    "preempted": Kind(
        "preempted", preempt, "itself", ("PREEMPTED", "REQUEUED"), settings=("slurm.slurm_partition=preempt",)
    ),
    "cut_5s": Kind("network cut 5 s", cut_short, "unharmed", (), loss=0),
    "disk_full": Kind("disk full on checkpoint", fill, "resume", ("FAILED",), "No space left", small=True),
    "read_only": Kind("run folder made read-only", freeze_folder, "resume", ("FAILED",), "Read-only file system"),
    "daemons": Kind("slurmctld or munged restarted", restart, "unharmed", (), loss=0),
    "other_code": Kind(
        "other code on one host", other_code, "resume", ("FAILED",), "do not run the same program", before=True, loss=0
    ),
    "staged": Kind(
        "staged file corrupted", corrupt, "unharmed", (), "is not what was copied there", before=True, loss=0,
        settings=("staging.to=host_local",),
    ),
    # Requeued before Slurm has given the host up, a job has one record: that of its next run
    "crashed": Kind("host crashed", crash, "itself", ("NODE_FAIL", "REQUEUED", "COMPLETED"), rank=1),
    "crashed_first": Kind(
        "first host crashed, the driver with it", crash, "itself", ("NODE_FAIL",), rank=0, is_unheard=True
    ),
    "cut": Kind("network cut for good", cut, "itself", ("NODE_FAIL", "REQUEUED", "COMPLETED"), rank=1),
    "cut_first": Kind(
        "first host's network cut for good", cut, "itself", ("NODE_FAIL", "REQUEUED"), rank=0, is_unheard=True
    ),
}  # fmt: skip


# --- inside a cluster


def inside(options: argparse.Namespace) -> None:
    work, cluster = Path(options.work), Description.of_this_cluster()
    experiment = work / "faults.yaml"
    expected = undisturbed(work, lambda: submit_undisturbed(work, experiment))
    staged: list[bool] = []

    def trial(kind: Kind, name: str, number: int) -> dict[str, Any]:
        if name == "staged" and not staged:
            stage_first(work, experiment, kind)
            staged.append(True)
        return one(kind, name, number, work, cluster, expected)

    go_through(options, KINDS, trial, lambda: settle(cluster))


def go_through(
    options: argparse.Namespace,
    kinds: Mapping[str, Kind],
    trial: Callable[[Kind, str, int], dict[str, Any]],
    settle: Callable[[], None],
) -> None:
    """Make the trials that are not made yet and that no other cluster is at: a line of trials.jsonl each."""
    work = Path(options.work)
    trials = work / "trials.jsonl"
    for number in range(options.trials):
        for name in options.only or kinds:
            done = {row["trial"] for row in rows_of(trials)}
            if f"{name}-{number}" in done or not claim(work / "claims", f"{name}-{number}"):
                continue
            began = time.time()
            try:
                row = trial(kinds[name], name, number)
            except Exception as error:  # noqa: BLE001  # one trial must not end the others
                row = {"as_promised": False, "problems": [f"{type(error).__name__}: {error}"]}
            row = {"trial": f"{name}-{number}", "kind": name, "code": options.code, "time": began, **row}
            row["trial_s"] = round(time.time() - began, 1)
            append(trials, row)
            verdict = "as promised" if row["as_promised"] else "; ".join(row["problems"])
            times = f"over after {row.get('over_s')} s, lost {row.get('lost')} steps, {row['trial_s']} s in all"
            print(f"{name}-{number}: {verdict} ({times})", flush=True)
            settle()


def undisturbed(work: Path, make: Callable[[], None]) -> dict[str, str]:
    """The digests of a run that is left alone; the first cluster makes it, the others wait."""
    path = work / "logs" / "undisturbed"
    if claim(work / "claims", "undisturbed") and not (path / "outcome.json").exists():
        make()
    run = Run(_folder(path))
    wait_until(lambda: path.exists() and run.status() == "done", "the undisturbed run", 240)
    time.sleep(1)
    return run.digests()


def submit_undisturbed(work: Path, experiment: Path) -> None:
    must_be_done(Run.submit(experiment, "undisturbed", logs=work / "logs", data=work / "data"), 180)


def must_be_done(run: Run, timeout_s: float) -> None:
    """Wait for a run that nothing happens to."""
    if not run.wait_over(timeout_s) or run.status() != "done":
        raise RuntimeError(run.log())


def _folder(path: Path) -> Any:
    from graphmill.record.run_folder import RunFolder

    return RunFolder(path)


def stage_first(work: Path, experiment: Path, kind: Kind) -> None:
    """A copy on the first two hosts, to be damaged."""
    settings = [*kind.settings, "train.epochs=1", 'slurm.sbatch_args=["--nodelist=host1,host2"]']
    name = f"stages-{time.time_ns()}"
    run = Run.submit(experiment, name, logs=work / "logs", data=work / "data", settings=settings)
    must_be_done(run, 180)


def one(
    kind: Kind, name: str, number: int, work: Path, cluster: Description, expected: dict[str, str]
) -> dict[str, Any]:
    """One trial."""
    logs = work / ("small" if kind.small else "logs")
    run_id = f"{name}-{number}"
    shutil.rmtree(logs / run_id, ignore_errors=True)
    settings = list(kind.settings)
    if kind.small:  # what the job prints must have room
        outputs = work / "out" / run_id
        shutil.rmtree(outputs, ignore_errors=True)
        outputs.mkdir(parents=True)
        settings.append(f"slurm.output_dir={outputs}")
    if kind.before:  # where it will run must be known
        settings.append('slurm.sbatch_args=["--nodelist=host1,host2"]')
    chance = random.Random(f"{name}-{number}")
    run = Run(_folder(logs / run_id), outputs=outputs if kind.small else logs / run_id)
    trial = Trial(number, run, cluster, chance, struck=kind.rank)
    try:
        return _one(kind, trial, work, settings, expected)
    finally:
        trial.mend()
        if kind.small:  # small: what is to be read must move away
            shutil.copytree(logs / run_id, work / "logs" / run_id, dirs_exist_ok=True)
            shutil.rmtree(logs / run_id, ignore_errors=True)


def _one(kind: Kind, trial: Trial, work: Path, settings: list[str], expected: dict[str, str]) -> dict[str, Any]:
    run = trial.run
    name, logs = run.folder.path.name, run.folder.path.parent
    if kind.before:
        kind.strike(trial)
    submitted = Run.submit(work / "faults.yaml", name, logs=logs, data=work / "data", settings=settings)
    run.said += submitted.said
    at_step = 0
    if not kind.before:
        at_step = trial.chance.randrange(EARLIEST, LATEST)
        run.wait_running(steps=at_step)
        struck_host = trial.host().name
    else:
        wait_until(lambda: state_of(run.jobs[-1]) in ("RUNNING", "COMPLETED", "FAILED"), "the job to run", 60)
        struck_host = trial.cluster.hosts[trial.number % 2].name
    struck, first_job, ranks = time.time(), run.jobs[-1], trial.processes()
    if not kind.before:
        kind.strike(trial)
    healed = time.time()
    given_up_s = 1.5 * trial.cluster.slurmd_timeout_s  # with the time between two pings
    over, gone = wait_end(first_job, ranks, 180 + given_up_s)
    ended = run.wait_over(240 + given_up_s if kind.goes_on != "resume" else 90)
    row: dict[str, Any] = {"at_step": at_step, "rank": trial.rank, "host": struck_host}
    told = run.first_error_after(struck)
    row["told_s"] = round(told - struck, 1) if told else None
    row["over_s"] = round(over - struck, 1) if over else None
    row["gone_s"] = round(gone - struck, 1) if gone and ranks and kind.goes_on != "unharmed" else None
    row["strike_s"] = round(healed - struck, 1)
    row["states"] = run.accounted()
    row["attempt_outcome"] = run.status()
    outcome = run.outcome()
    row["message"] = outcome.message if outcome else ""
    row["log_lines"] = len(run.log().splitlines())
    row["damaged"] = run.damaged_checkpoints()
    row["attempts_alone"] = len(run.folder.attempts())
    log = run.log()
    trial.mend()
    resumed = kind.goes_on == "resume"
    if resumed:
        run.resume()
        ended = run.wait_over(120) and ended
    row["ended"] = ended
    row["done_s"] = round(time.time() - struck, 1)
    row["lost"] = max(run.steps_lost(), default=0)
    row["status"] = run.status()
    row["identical"] = run.digests() == expected
    row["states_all"] = run.accounted()
    untrue = [
        f"{check.group} {check.name}: {check.detail}" for check in verify_run(run.folder) if check.result == "fail"
    ]
    row["problems"] = problems_of(kind, trial, row, log + row["message"])
    row["problems"] += [f"verify: {what}" for what in untrue]
    row["as_promised"] = not row["problems"]
    return row


def wait_end(job: str, ranks: list[psutil.Process], timeout_s: float) -> tuple[float | None, float | None]:
    """When the job was seen not to run any more, and when none of these processes was left (Unix time, s)."""
    over = gone = None
    until = time.monotonic() + timeout_s
    while (over is None or gone is None) and time.monotonic() < until:
        if gone is None and not any(is_alive(process) for process in ranks):
            gone = time.time()
        state = state_of(job) if over is None else ""
        if state and state not in ("RUNNING", "CONFIGURING"):
            over = time.time()
        time.sleep(0.2)
    return over, gone


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def problems_of(kind: Kind, trial: Trial, row: dict[str, Any], said: str) -> list[str]:
    """What was promised and is not so."""
    first = row["states"][0] if row["states"] else "nothing"
    says = kind.says.format(rank=trial.rank, host=row["host"], ranks=trial.run.num_ranks)
    checks = {
        "nothing ended within the time": row["ended"],
        f"the run is {row['status']}": row["status"] == "done",
        "not identical": row["identical"],
        f"damaged: {row['damaged']}": not row["damaged"],
        f"job {first}": not kind.states or first in kind.states,
        f"harmed: {row['states']}, {row['attempts_alone']} attempts": kind.goes_on != "unharmed"
        or row["attempts_alone"] == 1,
        f"not by itself: {row['attempts_alone']} attempts": kind.goes_on != "itself"
        or row["attempts_alone"] > 1
        or row["attempt_outcome"] == "done",  # it reached its end before SIGKILL came
        f"does not say {says!r}": says in said,
        "the first error is not told": kind.states != ("FAILED",) or "\nerror: " in said,
        f"lost {row['lost']} steps": row["lost"] <= kind.most_lost(),
        f"the attempt was over only after {row['over_s']} s": kind.goes_on == "unharmed"
        or (row["over_s"] is not None and (kind.is_unheard or row["over_s"] <= NO_HANG_S)),
        f"the ranks were gone only after {row['gone_s']} s": kind.goes_on == "unharmed"
        or kind.before
        or (row["gone_s"] is not None and row["gone_s"] <= NO_HANG_S),
        f"COMPLETED, and the run was {row['attempt_outcome']}": "COMPLETED" not in row["states"]
        or row["attempt_outcome"] == "done",
    }
    return [what for what, holds in checks.items() if not holds]


def revive(cluster: Description) -> None:
    """Power and network for all hosts."""
    for host in cluster.hosts:
        hosts.heal(host)
        if hosts.first_process(host) is None:
            build.boot(cluster, host)


def settle(cluster: Description) -> None:
    """No job, all hosts idle."""
    subprocess.run(["scancel", "--quiet", f"--user={cluster.user}"], check=False)
    revive(cluster)

    def idle() -> bool:
        words = ["sinfo", "--noheader", "--Node", "--partition=normal", "--format=%N %T"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        states = dict(line.split() for line in said.splitlines())
        for name, state in states.items():
            if state in ("down", "drained"):
                subprocess.run(["scontrol", "update", f"nodename={name}", "state=resume"], check=False)
        return set(states.values()) == {"idle"}

    wait_until(idle, "all hosts to be idle", 120 + cluster.slurmd_timeout_s)  # pings are a third of that apart


# --- outside


@dataclass(frozen=True)
class Benchmark:
    """What the faults under Slurm and those over SSH do not share."""

    name: str  # of its script and of its result
    doc: str
    kinds: Mapping[str, Kind]
    experiment: str
    inside: Callable[[argparse.Namespace], None]  # what runs in each cluster
    cluster: tuple[str, ...]  # options of `graphmill devcluster run`
    columns: tuple[tuple[str, str], ...]  # heading, key of the summary
    has_slurmd: bool = True  # it depends on when Slurm gives a host up
    facts: Mapping[str, Any] = field(default_factory=dict)  # to note in the result

    def main(self) -> None:
        options = self.options()
        if options.inside:
            self.inside(options)
            return
        work = Path(options.work)
        if options.again:
            shutil.rmtree(work, ignore_errors=True)
        with Ledger(work / "logs") as ledger:  # one code for all trials, over all calls
            if not options.report:
                self.run_clusters(options, work)
        rows = rows_of(work / "trials.jsonl")
        if options.only:
            rows = [row for row in rows if row["kind"] in options.only]
        facts = {"slurmd_timeout_s": options.slurmd_timeout} if self.has_slurmd else {}
        report(replace(self, facts={**self.facts, **facts}), rows, ledger)

    def options(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--trials", type=int, default=10)
        parser.add_argument("--only", action="append", choices=list(self.kinds))
        parser.add_argument("--clusters", type=int, default=3)
        work = Path(tempfile.gettempdir()) / f"graphmill-{self.name.replace('_', '-')}"
        parser.add_argument("--work", default=str(work))
        parser.add_argument("--again", action="store_true", help="forget earlier trials")
        parser.add_argument("--report", action="store_true", help="only write the result of the trials so far")
        if self.has_slurmd:
            text = "SlurmdTimeout of the clusters, s"
            parser.add_argument("--slurmd-timeout", type=int, default=SLURMD_TIMEOUT_S, help=text)
        parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
        parser.add_argument("--code", default="", help=argparse.SUPPRESS)
        return parser.parse_args()

    def run_clusters(self, options: argparse.Namespace, work: Path) -> None:
        from graphmill.runtime.code import code_checksum
        from graphmill.tasks.node_classification.data.prepare import prepare

        (work / "logs").mkdir(parents=True, exist_ok=True)
        shutil.rmtree(work / "claims", ignore_errors=True)
        (work / "faults.yaml").write_text(self.experiment)
        if not (work / "data").exists():
            sizes = {"num_nodes": 3000, "num_edges": 15000, "features": 32}
            prepare("synthetic/sbm", root=work / "data", options=sizes)
        only = [word for kind in options.only or [] for word in ("--only", kind)]
        script = Path(__file__).with_name(f"{self.name}.py")
        words = [sys.executable, str(script), "--inside", f"--work={work}", f"--trials={options.trials}", *only]
        frozen = freeze(work)
        command = [*words, f"--code={code_checksum()}"]
        slurmd = [f"--slurmd-timeout-s={options.slurmd_timeout}"] if self.has_slurmd else []
        running = [in_cluster(work, frozen, command, *self.cluster, *slurmd) for _ in range(options.clusters)]
        for process in running:
            process.wait()


def report(benchmark: Benchmark, rows: list[dict[str, Any]], ledger: Ledger) -> None:
    """Table and result."""
    table, kinds = [], {}
    for name, kind in benchmark.kinds.items():
        mine = [row for row in rows if row["kind"] == name]
        if not mine:
            continue
        kinds[name] = summary(kind, mine)
        one_ = kinds[name]
        table.append(
            [kind.words, f"{one_['as_promised']} of {one_['trials']}", f"{one_['identical']} of {one_['trials']}"]
            + [spread(one_[key]) for _, key in benchmark.columns]
        )
    headings = [heading for heading, _ in benchmark.columns]
    print_table(benchmark.name, ["fault", "as promised", "bit-identical", *headings], table)
    completed = [row["trial"] for row in rows if any("COMPLETED" in problem for problem in row["problems"])]
    result = {
        "kinds": kinds,
        "num_trials": len(rows),
        "num_as_promised": sum(row["as_promised"] for row in rows),
        "num_identical": sum(bool(row.get("identical")) for row in rows),
        "num_damaged_checkpoints": sum(len(row.get("damaged", [])) for row in rows),
        "completed_without_outcome": completed,
        "num_left": sum(len(row.get("left", [])) for row in rows),  # processes on the hosts, where they were looked for
        "longest_s": max((row.get(key) or 0 for row in rows for key in ("over_s", "gone_s")), default=0),
        "steps_per_rank": STEPS,
        "hang_timeout_s": HANG_S,
        "checkpoint_every_steps": 20,
        **benchmark.facts,
        "codes": sorted({row["code"] for row in rows}),
        "foreign_cores": ledger.foreign_cores(),
    }
    write_result(benchmark.name, result, ledger.origin)


def summary(kind: Kind, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one kind."""
    return {
        "words": kind.words,
        "goes_on": kind.goes_on,
        "trials": len(rows),
        "as_promised": sum(row["as_promised"] for row in rows),
        "identical": sum(bool(row.get("identical")) for row in rows),
        "told_s": median_max([row.get("told_s") for row in rows]),
        "over_s": median_max([row.get("over_s") for row in rows if kind.goes_on != "unharmed"]),
        "gone_s": median_max([row.get("gone_s") for row in rows]),
        "steps_lost": median_max([row.get("lost") for row in rows]),
        "problems": [{row["trial"]: row["problems"]} for row in rows if row["problems"]],
    }


def median_max(values: list[float | None]) -> list[float] | None:
    """Median and maximum of those that are there."""
    known = [value for value in values if value is not None]
    return [statistics.median(known), max(known)] if known else None


def spread(pair: list[float] | None) -> str:
    return f"{pair[0]:.0f} (max {pair[1]:.0f})" if pair else ""


if __name__ == "__main__":
    Benchmark(
        name="faults",
        doc=__doc__,
        kinds=KINDS,
        experiment=EXPERIMENT,
        inside=inside,
        cluster=("--no-ssh", "--hosts=3"),
        columns=(
            ("told after s", "told_s"),
            ("ranks gone after s", "gone_s"),
            ("attempt over after s", "over_s"),
            ("steps lost", "steps_lost"),
        ),
    ).main()
