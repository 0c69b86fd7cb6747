"""A site profile from what a cluster says of itself: the rules, then a real cluster."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_cases import num_examples

from graphmill.base.errors import UserError
from graphmill.cli.site import text_of
from graphmill.cluster.jobs.probe import Folder, profile_of
from graphmill.config.yaml_text import read_document
from graphmill.slurm.configuration import Cluster, Host, Qos, SlurmPartition
from graphmill.spec.job.resolve import resolve_job
from graphmill.spec.job.site import Site, load_site
from graphmill.spec.load import load_experiment

NORMAL = SlurmPartition("normal", True, True, 86400, 3600, None, None, None, "off", None, None)
CPU = Host("n1", 64, 256000, 0, None, (), ("normal",))
GPU = Host("g1", 32, 512000, 4, "a100", ("rome",), ("normal", "gpu"))
CLUSTER = Cluster(
    settings={"ClusterName": "ours", "SLURM_VERSION": "24.11.5", "KillWait": "30 sec"},
    slurm_partitions=(NORMAL, replace(NORMAL, name="gpu", is_default=False, max_hosts=2, cpus_per_gpu=8)),
    hosts=(CPU, replace(CPU, name="n2"), GPU),
    qos=(),
    accounts=None,
    default_account=None,
)


def profile(cluster: Cluster, *folders: Folder) -> Site:
    return Site.model_validate(profile_of(cluster, "ours", date="2026-11-22", folders=folders))


def test_hosts_that_are_alike_are_one_kind():
    site = profile(CLUSTER)
    assert list(site.hosts) == ["64cpu-250G", "32cpu-500G-4a100"]
    cpu, gpu = site.hosts.values()
    assert (cpu.count, cpu.cpus, cpu.memory, cpu.gpus, cpu.slurm_partitions) == (2, 64, "250G", 0, ("normal",))
    assert (gpu.count, gpu.gpus, gpu.gpu_type, gpu.cpus_per_gpu, gpu.constraints) == (1, 4, "a100", 8, ("rome",))


def test_limits_are_those_of_the_partitions_and_the_default_one_is_named():
    site = profile(CLUSTER)
    assert (site.defaults.slurm_partition, site.defaults.time, site.defaults.gpus_per_host) == ("normal", "01:00:00", 0)
    assert site.slurm_partitions["gpu"].max_hosts == 2
    assert site.scheduler.model_dump() == {
        "slurm_version": "24.11.5", "kill_wait_s": 30,
    }  # fmt: skip
    with pytest.raises(UserError, match="normal"):
        resolve_job(load_experiment("debian-packages-sage", ["slurm.time=2-00:00:00", "train.device=cpu"]), site)


def test_a_default_time_that_nobody_set_is_no_longer_than_the_partition_allows():
    short = replace(CLUSTER, slurm_partitions=(replace(NORMAL, default_time_s=None, max_time_s=600),))
    assert profile(short).defaults.time == "00:10:00"


def test_partitions_of_other_accounts_and_closed_ones_are_left_out_with_their_hosts():
    gpu = CLUSTER.slurm_partitions[1]
    theirs = replace(gpu, accounts=frozenset({"theirs"}))
    only_there = replace(GPU, slurm_partitions=("gpu",))
    for closed in (theirs, replace(gpu, is_open=False)):
        cluster = replace(
            CLUSTER, slurm_partitions=(NORMAL, closed), hosts=(CPU, only_there), accounts=frozenset({"mine"})
        )
        assert list(profile(cluster).slurm_partitions) == ["normal"]
        assert list(profile(cluster).hosts) == ["64cpu-250G"]
    assert "gpu" in profile(replace(CLUSTER, slurm_partitions=(NORMAL, theirs), accounts=None)).slurm_partitions


def test_qualities_of_service_count_only_where_they_are_enforced():
    asked = replace(CLUSTER, qos=(Qos("high", 7200, 4),))
    assert not profile(asked).qos
    site = profile(replace(asked, settings={**CLUSTER.settings, "AccountingStorageEnforce": "associations,limits,qos"}))
    assert (site.qos["high"].max_time, site.qos["high"].max_hosts) == ("02:00:00", 4)


@pytest.mark.parametrize(("enforce", "has_default", "required"), [("none", False, False), ("limits", False, True),
                                                                  ("associations", True, False)])  # fmt: skip
def test_an_account_is_required_where_one_is_enforced_and_none_is_the_default(enforce, has_default, required):
    settings = {**CLUSTER.settings, "AccountingStorageEnforce": enforce}
    site = profile(replace(CLUSTER, settings=settings, default_account="mine" if has_default else None))
    assert site.limits.account_required is required


def test_memory_beyond_a_cpus_share_takes_more_cpus():
    site = profile(replace(CLUSTER, slurm_partitions=(replace(NORMAL, max_memory_per_cpu_mib=4000),)))
    assert site.limits.more_memory_takes_more_cpus
    assert site.hosts["64cpu-250G"].memory_per_cpu == "4000M"


def test_folders_that_a_job_saw():
    seen = (Folder("TMPDIR", 10, "/tmp"), Folder("SLURM_TMPDIR", 10, "/local/7"), Folder("WORK", 1, "/work"))
    assert (profile(CLUSTER, *seen).host_local, profile(CLUSTER, *seen).scratch) == ("SLURM_TMPDIR", "WORK")
    assert (profile(CLUSTER).host_local, profile(CLUSTER).scratch) == (None, None)


def test_a_job_that_would_be_cancelled_by_preemption_is_told_what_continues_it():
    site = profile(replace(CLUSTER, slurm_partitions=(replace(NORMAL, preempt_mode="cancel"),)))
    cpu = ["train.device=cpu"]
    assert any("resubmit" in text for text in resolve_job(load_experiment("debian-packages-sage", cpu), site).remarks)
    resubmitted = load_experiment("debian-packages-sage", [*cpu, "slurm.on_time_limit=resubmit"])
    assert not resolve_job(resubmitted, site).remarks
    assert not resolve_job(load_experiment("debian-packages-sage", cpu), profile(CLUSTER)).remarks


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
spans = st.none() | st.integers(1, 10**7)
partitions = st.builds(
    SlurmPartition,
    name=names,
    is_default=st.booleans(),
    is_open=st.booleans(),
    max_time_s=spans,
    default_time_s=spans,
    max_hosts=st.none() | st.integers(1, 9999),
    max_memory_per_cpu_mib=st.none() | st.integers(1, 10**6),
    cpus_per_gpu=st.none() | st.integers(1, 128),
    preempt_mode=st.sampled_from(["off", "cancel", "requeue", "suspend"]),
    accounts=st.none() | st.frozensets(names, max_size=2),
    qos=st.none(),
)


@settings(max_examples=num_examples(50))
@given(st.lists(partitions, max_size=4, unique_by=lambda each: each.name), st.data())
def test_whatever_slurm_says_the_file_reads_back_as_the_profile(tmp_path_factory, found, data):
    in_some = (
        st.lists(st.sampled_from([each.name for each in found]), unique=True, min_size=1) if found else st.just([])
    )
    hosts = st.builds(
        Host,
        name=names,
        cpus=st.integers(1, 512),
        memory_mib=st.integers(1, 10**7),
        gpus=st.integers(0, 16),
        gpu_type=st.none() | names,
        features=st.lists(names, max_size=2).map(tuple),
        slurm_partitions=in_some.map(tuple),
    )
    cluster = replace(CLUSTER, slurm_partitions=tuple(found), hosts=tuple(data.draw(st.lists(hosts, max_size=5))))
    made = profile_of(cluster, "ours", date="2026-11-22")
    path = tmp_path_factory.mktemp("site") / "ours.yaml"
    path.write_text(text_of(made))
    site = Site.model_validate(made)
    assert load_site(str(path), folders=[]) == site
    usable = {each.name for each in found if each.is_open}
    assert sum(kind.count or 0 for kind in site.hosts.values()) == sum(
        bool(usable & set(host.slurm_partitions)) for host in cluster.hosts
    )


@pytest.mark.parametrize("text", ["0E0", "1e5", ".5", "1_0", "007", "0x1", "null", "yes", "1:30", "- a", "{"])
def test_text_that_reads_like_something_else_is_quoted(tmp_path, text):
    path = tmp_path / "site.yaml"
    path.write_text(text_of({"key": text, text: "value"}))
    assert read_document(path, holds="a profile").value == {"key": text, text: "value"}


def test_a_real_cluster_is_written_down_as_it_is_configured(cluster, tmp_path):
    there = {"XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "200"}
    before = sorted(tmp_path.rglob("*"))
    dry = cluster.graphmill("site", "probe", "--dry-run", cwd=tmp_path, **there)
    assert dry.code == 0, dry.err
    assert sorted(tmp_path.rglob("*")) == before
    done = cluster.graphmill("site", "probe", "--name", "ours", "--with-job", "--json", cwd=tmp_path, **there)
    assert done.code == 0, done.out + done.err
    answer = json.loads(done.out)
    path = tmp_path / "graphmill" / "sites" / "ours.yaml"
    assert answer["path"] == str(path)
    site = load_site(str(path), folders=[])
    (kind,) = site.hosts.values()
    assert (kind.count, kind.cpus, kind.memory, kind.gpus, kind.gpu_type) == (4, 2, "4000M", 2, "v100")
    assert (site.host_local, site.scheduler.kill_wait_s) == ("SLURM_TMPDIR", 5)
    assert {name: each.preempt_mode for name, each in site.slurm_partitions.items()} == {
        "normal": "off",
        "preempt": "requeue",
    }
    assert {each["slurm_partition"] for each in answer["tried"] if each["is_accepted"]} == {"normal", "preempt"}
    again = cluster.graphmill("site", "probe", "--name", "ours", cwd=tmp_path, **there)
    assert again.code == 2
    assert "--force" in again.err
    listed = json.loads(cluster.graphmill("site", "list", "--json", cwd=tmp_path, **there).out)["sites"]
    assert [each["name"] for each in listed if each["own"]] == ["ours"]
