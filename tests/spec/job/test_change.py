"""What a resumed run may ask Slurm for otherwise."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.job.change import MAY_CHANGE, changed_job, differences
from graphmill.spec.job.options import SlurmSpec
from graphmill.spec.job.resolve import Job, resolve_job
from graphmill.spec.job.site import Site
from graphmill.spec.load import inline_experiment

SITE = Site(name="ours", modules=("gcc",))


def _job(**section: object) -> Job:
    experiment = inline_experiment({"slurm": {"mem": "4G", "time": "01:00:00", **section}}, "the test")
    return resolve_job(experiment, SITE, run_folders=["/logs/r"])


def test_what_is_not_named_stays():
    before = _job(account="a", env={"A": 1}, modules=["cuda"])
    after = changed_job(before, SITE, ["slurm.mem=8G", "slurm.env.B=2"])
    assert differences(before, after) == ("mem 4G → 8G", "env {'A': '1'} → {'A': '1', 'B': '2'}")
    assert (after.account, after.modules, after.time_s) == ("a", ("gcc", "cuda"), 3600)
    assert changed_job(before, SITE, []) == before
    assert changed_job(before, SITE, ["slurm.modules=[rocm]"]).modules == ("gcc", "rocm")


def test_the_warning_follows_the_limit_unless_it_was_set():
    assert changed_job(_job(), SITE, ["slurm.time=00:02:00"]).signal_before_s == 30
    own = _job(signal_before_s=300)
    assert changed_job(own, SITE, ["slurm.time=00:10:00"]).signal_before_s == 300
    with pytest.raises(UserError, match="signal_before_s"):
        changed_job(own, SITE, ["slurm.time=00:05:00"])


@pytest.mark.parametrize("key", sorted(set(SlurmSpec.model_fields) - {*MAY_CHANGE, "hosts", "ranks_per_host"}))
def test_keys_of_the_plan_are_refused(key: str):
    with pytest.raises(UserError, match=f"slurm.{key} "):
        changed_job(_job(), SITE, [f"slurm.{key}=1"])


SIZES = {
    "fewer hosts": (["slurm.hosts=1"], {"hosts": 1, "ranks_per_host": 4, "cpus_per_host": 8}),
    "more hosts": (["slurm.hosts=4"], {"hosts": 4, "ranks_per_host": 4, "cpus_per_host": 8}),
    "fewer on each": (["slurm.ranks_per_host=2"], {"hosts": 2, "ranks_per_host": 2, "cpus_per_host": 8}),
    "so many in all": (["train.ranks=4"], {"hosts": 2, "ranks_per_host": 2, "cpus_per_host": 8}),
    "both": (["slurm.hosts=4", "train.ranks=4"], {"hosts": 4, "ranks_per_host": 1, "cpus_per_host": 8}),
}


@pytest.mark.parametrize("name", SIZES)
def test_another_number_of_ranks_is_the_job_that_a_new_run_of_so_many_would_have(name: str):
    overrides, section = SIZES[name]
    before = _job(hosts=2, ranks_per_host=4, cpus_per_host=8)
    assert changed_job(before, SITE, overrides) == _job(**section)


def test_each_rank_keeps_a_gpu():
    gpus = {"gpus_per_host": 4, "gres": "gpu:a100:4,shard:2"}
    after = changed_job(_job(ranks_per_host=4, cpus_per_host=8, **gpus), SITE, ["train.ranks=2"])
    assert (after.ranks_per_host, after.gpus_per_host, after.gres) == (2, 2, "gpu:a100:2,shard:2")
    shared = changed_job(_job(ranks_per_host=4, cpus_per_host=8, gpus_per_host=1), SITE, ["train.ranks=2"])
    assert (shared.ranks_per_host, shared.gpus_per_host) == (2, 1)


@pytest.mark.parametrize("overrides", [["train.ranks=3"], ["train.ranks=4", "slurm.ranks_per_host=4"]])
def test_sizes_that_do_not_fit_each_other_are_refused(overrides: list[str]):
    with pytest.raises(UserError, match=r"train\.ranks"):
        changed_job(_job(hosts=2, ranks_per_host=4, cpus_per_host=8), SITE, overrides)


@pytest.mark.parametrize("key", [key for key in MAY_CHANGE if key in Job.model_fields])
def test_a_changed_job_is_what_a_new_one_would_be(key: str):
    value = {"dependency": "afterok:1", "mail_type": ["END"], "mail_user": "a@b.org", "exclusive": True, "nice": 3}
    lists = {"modules": ["m"], "setup_lines": ["true"], "sbatch_args": ["--spread-job"], "env": {"A": "1"}, "mem": "8G"}
    numbers = {
        "max_attempts": 3,
        "retries": 2,
        "signal_before_s": 9,
        "port": 4000,
        "on_time_limit": "stop",
        "interface": "eth0",
    }
    chosen = {**value, **lists, **numbers}.get(key, "x")
    changed = changed_job(_job(), SITE, [f"slurm.{key}={chosen}"])
    assert changed == _job(**{key: chosen})
    assert changed != _job()


def _job_with_roles(samplers: int, trainers: int, **section: object) -> Job:
    experiment = inline_experiment(
        {"slurm": {"mem": "4G", "time": "01:00:00", **section}, "roles": {"samplers": samplers, "trainers": trainers}},
        "the test",
    )
    return resolve_job(experiment, SITE, run_folders=["/logs/r"])


@pytest.mark.parametrize(
    ("overrides", "hosts", "trainers"),
    [
        (["train.ranks=2"], 2, 2),
        (["slurm.hosts=1"], 1, 4),
        (["slurm.hosts=3"], 3, 4),
        (["slurm.hosts=1", "train.ranks=6"], 1, 6),
    ],
)
def test_samplers_stay_when_others_go_on(overrides, hosts, trainers):
    before = _job_with_roles(2, 4, hosts=2, cpus_per_host=24, gpus_per_host=2)
    after = changed_job(before, SITE, overrides)
    assert (after.hosts, after.ranks, after.samplers) == (hosts, trainers, 2)
    assert (after.cpus_per_host, after.gpus_per_host) == (24, trainers // min(hosts, 2))


def test_ranks_beside_samplers_that_do_not_fit_the_hosts_are_refused():
    with pytest.raises(UserError, match=r"is 3 with 2 samplers, which does not divide among 2 hosts"):
        changed_job(_job_with_roles(2, 4, hosts=2), SITE, ["train.ranks=3"])
