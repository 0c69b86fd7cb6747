from typing import Any

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.sites import site_folders
from graphmill.spec.experiment import Experiment
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import load_site
from graphmill.spec.job.work import Begin
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.spec.roles import RolesSpec
from graphmill.tasks.node_classification.page import GraphInfo


def _experiment(train: dict[str, Any] | None = None, staging: str = "nowhere", **section: Any) -> Experiment:
    value = {"name": "x", "train": {"epochs": 1, **(train or {})}, "slurm": section, "staging": {"to": staging}}
    return inline_experiment(value, "the test")


def _job(site: str = "generic-cpu", train: dict[str, Any] | None = None, **section: Any) -> Job:
    return resolve_job(_experiment(train, **section), load_site(site, folders=site_folders()[-1:]))


def _refused(site: str = "generic-cpu", train: dict[str, Any] | None = None, **section: Any) -> str:
    with pytest.raises(UserError) as caught:
        _job(site, train, **section)
    return str(caught.value)


def test_the_sites_defaults_fill_what_is_left_out():
    job = _job("perlmutter", account="m1234", hosts=2)
    assert (job.constraint, job.qos, job.time_s, job.interface) == ("gpu", "regular", 1800, "hsn0")
    assert (job.gpus_per_host, job.ranks_per_host, job.cpus_per_rank, job.ranks) == (4, 4, 32, 8)


def test_a_job_without_gpus_takes_the_other_hosts():
    job = _job("perlmutter", {"device": "cpu", "threads": 16}, account="m1234", ranks_per_host=2)
    assert (job.constraint, job.gpus_per_host, job.cpus_per_rank) == ("cpu", 0, 16)
    by_constraint = _job("perlmutter", account="m1234", constraint="cpu")
    assert (by_constraint.gpus_per_host, by_constraint.ranks_per_host) == (0, 1)
    by_number = _job("perlmutter", account="m1234", gpus_per_host=0)
    assert (by_number.constraint, by_number.gpus_per_host) == ("cpu", 0)


def test_what_is_asked_for_beats_the_site():
    job = _job("perlmutter", account="m1", qos="debug", time="00:10:00", constraint="gpu&hbm80g", interface="hsn1")
    assert (job.qos, job.time_s, job.constraint, job.interface) == ("debug", 600, "gpu&hbm80g", "hsn1")


def test_the_request_of_kd_gat_gets_a_v100_of_pitzer_and_a_warning_of_what_its_memory_costs():
    job = _job("pitzer", account="PAS1266", gres="gpu:v100:1", cpus_per_host=8, mem="85G")
    assert (job.gres, job.gpus_per_host, job.ranks_per_host, job.cpus_per_rank) == ("gpu:v100:1", 1, 1, 8)
    assert "12 CPUs on pitzer" in job.remarks[0]


@pytest.mark.parametrize(
    ("site", "train", "asked", "says"),
    [
        ("perlmutter", {}, {"time": "3-00:00:00"}, "perlmutter allows 2-00:00:00"),
        ("perlmutter", {}, {"qos": "debug", "time": 60}, "perlmutter allows 00:30:00 in qos debug"),
        ("perlmutter", {}, {"qos": "debug", "hosts": 9}, "allows 8 in qos debug"),
        ("perlmutter", {}, {"hosts": 1793}, "has 1792 such hosts (gpu)"),
        ("perlmutter", {}, {"gpus_per_host": 5}, "gpu hosts have 4"),
        ("perlmutter", {}, {"cpus_per_host": 128, "gpus_per_host": 2}, "give 32 CPUs to a GPU"),
        ("perlmutter", {}, {"cpus_per_host": 256}, "gpu hosts have 128"),
        ("perlmutter", {}, {"mem": "300G"}, "gpu hosts have 229G for jobs"),
        ("perlmutter", {}, {"qos": "regulr"}, "did you mean 'regular'"),
        ("perlmutter", {}, {"constraint": "gpuu"}, "did you mean 'gpu'"),
        ("perlmutter", {}, {"gres": "gpu:v100:1"}, "names v100 GPUs, which perlmutter does not have"),
        ("perlmutter", {}, {"account": None}, "perlmutter takes no job without one"),
        ("pitzer", {}, {"time": "8-00:00:00"}, "pitzer allows 7-00:00:00 on one host"),
        ("pitzer", {}, {"time": "5-00:00:00", "hosts": 2}, "pitzer allows 4-00:00:00"),
        ("pitzer", {}, {"mem": "800G"}, "have 363G for jobs"),
        ("devcluster", {}, {"hosts": 5}, "has 4 such hosts"),
        ("devcluster", {}, {"cpus_per_host": 3}, "hosts have 2"),
        ("devcluster", {}, {"mem": "5G"}, "have 4000M for jobs"),
        ("devcluster", {"ranks": 3}, {"hosts": 2}, "does not divide among 2 hosts"),
        ("generic-cpu", {"ranks": 4}, {"hosts": 2, "ranks_per_host": 4}, "leave out one of the two"),
        ("generic-cpu", {}, {"ranks_per_host": 3, "cpus_per_host": 8}, "set slurm.cpus_per_host=6 or 9"),
        ("generic-cpu", {}, {"gres": "gpu:2", "gpus_per_host": 1}, "leave out one of them"),
        ("generic-cpu", {}, {"time": 2, "signal_before_s": 120}, "set slurm.signal_before_s=30"),
        ("generic-cpu", {}, {"time": "30:00"}, "minutes, HH:MM:SS or D-HH:MM:SS"),
        ("generic-cpu", {}, {"mem": "lots"}, "an amount such as 85G"),
        ("generic-cpu", {}, {"account": "a b"}, "slurm.account: is 'a b', but it takes a name"),
        ("generic-cpu", {}, {"comment": "a\nb"}, "one line of printable text"),
        ("generic-cpu", {}, {"env": {"SECONDS": "a[$(x)]"}}, "bash's own variable"),
        ("generic-cpu", {}, {"env": {"BASH_ENV": "x"}}, "bash's own variable"),
        ("generic-cpu", {}, {"env": {"SLURM_PROCID": 0}}, "Slurm's own variable"),
        ("generic-cpu", {}, {"env": {"RANK": 0}}, "the script's own variable"),
        ("generic-cpu", {}, {"env": {"A-B": 0}}, "cannot name a variable"),
        ("generic-cpu", {}, {"env": {"A": "\0"}}, "which no environment can hold"),
        ("generic-cpu", {}, {"setup_lines": ["a\nb"]}, "one line of shell"),
        ("generic-cpu", {}, {"output_dir": "a\\b"}, "backslash"),
        ("generic-cpu", {}, {"sbatch_args": ["--time=5"]}, "set slurm.time"),
        ("generic-cpu", {}, {"sbatch_args": ["--wrap=x"]}, "--wrap does not go with a script"),
        ("generic-cpu", {}, {"sbatch_args": ["--wra=x"]}, "--wra is short for --wrap"),
        ("generic-cpu", {}, {"sbatch_args": ["--chdi=/x"]}, "--chdi is short for --chdir"),
        ("generic-cpu", {}, {"sbatch_args": ["--outp=/x"]}, "--outp is short for --output"),
        ("generic-cpu", {}, {"sbatch_args": ["--parsable"]}, "sbatch --parsable"),
        ("generic-cpu", {}, {"sbatch_args": ["-t 5"]}, "one --name or --name=value"),
        ("generic-cpu", {}, {"python": "eval"}, "a path, or a name such as python3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_the_sites_own_numbers(site: str, train: dict, asked: dict, says: str):
    account = {} if site in ("devcluster", "generic-cpu") else {"account": "m1"}
    assert says in _refused(site, train, **{**account, **asked})


def test_all_problems_are_told_at_once():
    told = _refused("perlmutter", time="9-0", hosts=5000, mem="1T", qos="x", comment="a\nb", env={"A B": "1"})
    assert told.startswith("7 problems in the request to perlmutter")


def test_memory_beyond_its_cpus_is_refused_where_the_site_does_not_grant_more(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("name: own\nhosts: {a: {cpus: 8, memory: 64G, memory_per_cpu: 8G}}\n")
    with pytest.raises(UserError, match=r"own's a hosts give 8G to a CPU\n.*slurm.mem=16384M or less, or slurm.cpus_p"):
        resolve_job(_experiment(cpus_per_host=2, mem="20G"), load_site(str(path), folders=()))


def test_a_plan_gives_the_hosts_and_ranks():
    facts = GraphInfo(
        name="toy", path="/toy", checksum="0", synthetic=False, num_nodes=9, num_edges=9, num_features=1, num_classes=2,
        num_train=9, has_sparse_features=False,
    )  # fmt: skip
    experiment = _experiment({"ranks": 4}, hosts=2)
    plan = resolve(experiment, machine=MachineInfo(num_cores=4, num_gpus=0), dataset=facts, run_id="r", hosts=2)
    job = resolve_job(experiment, load_site("generic-cpu", folders=site_folders()), plan, run_folders=["logs/r"])
    assert (job.hosts, job.ranks_per_host, job.output_dir, job.work.begin) == (2, 2, "logs/r", None)


def test_other_limits_are_the_same_plan():
    facts = GraphInfo(
        name="toy", path="/toy", checksum="0", synthetic=False, num_nodes=9, num_edges=9, num_features=1, num_classes=2,
        num_train=9, has_sparse_features=False,
    )  # fmt: skip

    def plan(**section: Any) -> str:
        machine = MachineInfo(num_cores=4, num_gpus=0)
        return resolve(_experiment(**section), machine=machine, dataset=facts, run_id="r").model_dump_json()

    assert plan() == plan(time="01:00:00", account="a", on_time_limit="resubmit", mem="1G", comment="other")


def test_an_array_trains_one_run_per_index_and_never_one_run_twice():
    site = load_site("generic-cpu", folders=site_folders())
    job = resolve_job(_experiment(array="0-1%1"), site, run_folders=["logs/s/a", "logs/s/b"])
    assert (job.work.run_folders, job.output_dir) == (("logs/s/a", "logs/s/b"), "logs/s")
    with pytest.raises(UserError, match="train one run several times"):
        resolve_job(_experiment(array="0-1"), site, run_folders=["logs/a"])


def test_staging_needs_a_site_that_says_where():
    site = load_site("perlmutter", folders=site_folders())
    staging = resolve_job(_experiment(staging="scratch", account="m1"), site).staging
    assert staging is not None
    assert (staging.to, staging.variable, staging.on_failure) == ("scratch", "SCRATCH", "fail")
    with pytest.raises(UserError, match="does not say which variable"):
        resolve_job(_experiment(staging="scratch"), load_site("devcluster", folders=site_folders()))


def test_a_job_is_read_back_as_it_was_written():
    job = _job("pitzer", account="PAS1", gres="gpu:1", env={"A": 1}, container={"kind": "pyxis", "image": "i"})
    assert Job.model_validate_json(job.model_dump_json()) == job


def test_a_run_folder_that_slurm_cannot_name_is_refused():
    site = load_site("generic-cpu", folders=site_folders())
    with pytest.raises(UserError, match="backslash"):
        resolve_job(_experiment(), site, run_folders=["logs\\x"])
    with pytest.raises(UserError, match="holds a %"):
        resolve_job(_experiment(), site, run_folders=["logs/100%"])
    with pytest.raises(UserError, match="control character"):
        resolve_job(_experiment(), site, begin=Begin(logs_root="a\nb"))


def _attending(site: str, train: dict[str, Any] | None = None, **section: Any) -> Job:
    experiment = inline_experiment(
        {"name": "x", "model": {"kind": "gat"}, "train": {"epochs": 1, **(train or {})}, "slurm": section,
         "staging": {"to": "nowhere"}}, "the test",
    )  # fmt: skip
    return resolve_job(experiment, load_site(site, folders=site_folders()[-1:]))


def test_where_attention_runs_on_the_sites_gpus_is_said():
    told = [remark for remark in _attending("perlmutter", account="m1").remarks if "attention" in remark]
    assert told == ["attention is fused, by Triton on GPUs, in these formats: a100 (8.0): fp32, fp16, bf16"]
    told = [remark for remark in _attending("pitzer", account="m1").remarks if "attention" in remark]
    assert told[0].endswith("v100 (7.0): fp32, fp16; torch for CUDA 13 has no code for it")
    for job in (_attending("pitzer", {"device": "cpu"}, account="m1"), _job("pitzer", account="m1")):
        assert not [remark for remark in job.remarks if "attention" in remark]


def test_attention_in_a_format_that_the_sites_gpus_have_not_is_refused():
    with pytest.raises(UserError, match=r"v100 has compute capability 7\.0") as caught:
        _attending("pitzer", {"precision": "bf16"}, account="m1")
    assert "model.attention: is fused, which runs in bf16 from compute capability 8.0 on" in str(caught.value)
    assert _attending("perlmutter", {"precision": "bf16"}, account="m1").gpus_per_host == 4


def _with_roles(samplers: int, trainers: int, train: dict[str, Any] | None = None, **section: Any) -> Experiment:
    roles = RolesSpec(samplers=samplers, trainers=trainers)
    return _experiment(train, **section).model_copy(update={"roles": roles})


@pytest.mark.parametrize(
    ("samplers", "trainers", "hosts", "each", "gpus"),
    [(2, 4, 2, 3, 2), (1, 4, 1, 5, 4), (2, 4, 3, 2, 2), (4, 4, 2, 4, 2)],
)
def test_a_host_starts_both_roles_and_asks_for_gpus_of_those_that_train(samplers, trainers, hosts, each, gpus):
    site = load_site("perlmutter", folders=site_folders()[-1:])
    asked = _with_roles(samplers, trainers, account="m1", hosts=hosts)
    job = resolve_job(asked, site)
    assert (job.ranks_per_host, job.samplers, job.ranks, job.gpus_per_host) == (each, samplers, trainers, gpus)
    assert job.cpus_per_host <= 128
    assert Job.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("samplers", "trainers", "train", "section", "says"),
    [
        (2, 4, {}, {"hosts": 2, "ranks_per_host": 2}, "is 2 on 2 hosts, but roles starts 3"),
        (2, 4, {"ranks": 2}, {}, "train.ranks is 2, but roles.trainers is 4"),
        (2, 3, {}, {}, "3 trainers cannot be shared out equally among 2 samplers"),
        (1, 4, {}, {"gpus_per_host": 2}, "puts 4 trainers on a host"),
    ],
)
def test_roles_that_a_job_cannot_start_are_refused(samplers, trainers, train, section, says):
    site = load_site("generic-cpu", folders=site_folders()[-1:])
    with pytest.raises(UserError) as refused:
        resolve_job(_with_roles(samplers, trainers, train, **section), site)
    assert says in str(refused.value)
