from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.sites import find_site, site_folders
from graphmill.spec.job.site import known_sites, load_site

PACKAGED = site_folders()[-1]


@pytest.mark.parametrize("name", ["devcluster", "generic-cpu", "perlmutter", "pitzer"])
def test_every_packaged_profile_loads_and_says_when_it_was_checked(name: str):
    site = load_site(name, folders=[PACKAGED])
    assert site.name == name
    assert site.checked
    assert site.description


def test_packaged_profiles_are_the_ones_documented():
    assert known_sites([PACKAGED]) == ["devcluster", "generic-cpu", "perlmutter", "pitzer"]


def test_own_profile_comes_before_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = tmp_path / "graphmill" / "sites"
    own.mkdir(parents=True)
    (own / "pitzer.yaml").write_text("name: pitzer\ndescription: mine\nlimits: {max_hosts: 3}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_site("pitzer").description == "mine"
    assert find_site(str(PACKAGED / "pitzer.yaml")).description.startswith("Pitzer")


def test_own_profiles_stand_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".config" / "graphmill" / "sites"
    own.mkdir(parents=True)
    (own / "ours.yaml").write_text("name: ours\n")
    assert find_site("ours").name == "ours"


@pytest.mark.parametrize("name", ["perlmuter", "", "..", "a b", "pitzer.yml", "../pitzer", "no/such.yaml"])
def test_an_unknown_site_is_refused_with_the_nearest_name(name: str):
    with pytest.raises(UserError) as caught:
        find_site(name)
    if name == "perlmuter":
        assert "did you mean 'perlmutter'" in caught.value.message
        assert "perlmuter.yaml" in caught.value.fix


def test_a_wrong_profile_is_refused_with_all_its_problems(tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: bad\nscratch: $SCRATCH\nlimits: {max_hots: 3, max_time: soon}\nhosts: {fat: {cpus: 0, memory: lots}}\n"
    )
    with pytest.raises(UserError) as caught:
        find_site(str(path))
    for part in ("scratch", "max_hosts", "soon", "cpus", "lots"):
        assert part in str(caught.value), part
