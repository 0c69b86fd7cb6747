"""What Slurm does not know of a site is asked for with what is known here, or left as lines that can be filled in."""

import io
import re

import pytest
import yaml

from graphmill.cli.site import ask, text_of
from graphmill.cluster.jobs.probe import Folder, filled_in, left_open, profile_of, with_lines
from graphmill.slurm.configuration import Cluster, Host, SlurmPartition
from graphmill.spec.job.site import Site

NORMAL = SlurmPartition("normal", True, True, 86400, 3600, None, None, None, "off", None, None)
LOGIN = {"LOADEDMODULES": "gcc/12:python/3.11", "WORK": "/work/me"}


def cluster(accounts=("physics",), default=None, partitions=(NORMAL,)):
    return Cluster(
        settings={"ClusterName": "ours"},
        slurm_partitions=partitions,
        hosts=(Host("n1", 64, 256000, 0, None, (), ("normal",)),),
        qos=(),
        accounts=None if accounts is None else frozenset(accounts),
        default_account=default,
    )


def profile_on(of, *folders):
    return profile_of(of, "ours", date="2026-11-26", folders=folders)


@pytest.mark.parametrize(
    ("of", "environ", "folders", "known"),
    [
        (cluster(), LOGIN, (), {"defaults.account": "physics", "modules": "gcc/12 python/3.11", "scratch": "WORK"}),
        (cluster(("a", "b")), {}, (), {"defaults.account": "", "scratch": ""}),
        (cluster(("a", "b"), "b"), {}, (), {"defaults.account": "", "scratch": ""}),
        (cluster(None), {"LMOD_CMD": "/lmod"}, (Folder("WORK", 1, "/work"),), {"modules": ""}),
        (cluster(None), {}, (Folder("SCRATCH", 1, "/s"),), {}),
    ],
)
def test_what_is_open_and_what_is_known_of_it(of, environ, folders, known):
    profile = profile_on(of, *folders)
    assert {each.key: each.known for each in left_open(of, profile, environ)} == known


@pytest.mark.parametrize("of", [cluster(), cluster((), partitions=())])
def test_the_lines_to_fill_in_are_keys_of_the_profile_once_the_hash_is_off(of):
    profile = profile_on(of)
    text = with_lines(text_of(profile), left_open(of, profile, LOGIN))
    assert Site.model_validate(yaml.safe_load(text)) == Site.model_validate(profile), "as lines they change nothing"
    head, _, rest = text.partition("\n")
    uncommented = re.sub(r"^( *)# ", r"\1", rest, flags=re.MULTILINE)
    site = Site.model_validate(yaml.safe_load(f"{head}\n{uncommented}"))
    assert site.defaults.account == ("physics" if of.accounts else "NAME")
    assert (site.modules, site.scratch) == (("gcc/12", "python/3.11"), "WORK")


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("\n\n\n", {"defaults.account": "physics", "modules": ["gcc/12", "python/3.11"], "scratch": "WORK"}),
        ("chem\ncuda/12, x\n/scratch/me\n$SCRATCH\n",
         {"defaults.account": "chem", "modules": ["cuda/12", "x"], "scratch": "SCRATCH"}),
    ],
)  # fmt: skip
def test_an_empty_answer_is_what_is_known_and_one_that_does_not_fit_is_asked_for_again(monkeypatch, typed, answers):
    of = cluster()
    profile = profile_on(of)
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert ask(left_open(of, profile, LOGIN)) == answers
    site = Site.model_validate(filled_in(profile, answers))
    assert site.defaults.account == answers["defaults.account"]
    assert site.defaults.slurm_partition == "normal"
    assert site.hosts.keys() == profile["hosts"].keys()


def test_what_may_be_left_out_is_where_nothing_is_answered(monkeypatch):
    of = cluster(("a", "b"), "b")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    assert ask(left_open(of, profile_on(of), {})) == {}
