"""What the ranks' containers are started with, and see: programs with the real ones' options stand in for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.jobs.arguments import Arguments, parse_arguments
from graphmill.cluster.jobs.steps import JobHere, Rendezvous, rank_command, staging_command

STAND_IN = f"""#!{sys.executable}
import argparse, json, os, sys
name = os.path.basename(sys.argv[0])
parser = argparse.ArgumentParser(name)
words = sys.argv[1:]
if name == "apptainer":  # apptainer exec [options] IMAGE COMMAND
    assert words.pop(0) == "exec"
    parser.add_argument("--bind", action="append"), parser.add_argument("--pwd")
    parser.add_argument("--nv", action="store_true")
if name == "shifter":  # shifter [options] -- COMMAND
    parser.add_argument("--image"), parser.add_argument("--volume", action="append", dest="bind")
    parser.add_argument("--workdir", dest="pwd")
if name == "podman-hpc":  # podman-hpc run [options] IMAGE COMMAND
    assert words.pop(0) == "run"
    parser.add_argument("--volume", action="append", dest="bind"), parser.add_argument("--workdir", dest="pwd")
    parser.add_argument("--network"), parser.add_argument("--ipc")
    for flag in ("--rm", "--gpu", "--env-host"):
        parser.add_argument(flag, action="store_true")
parser.add_argument("rest", nargs=argparse.REMAINDER)
found = parser.parse_args(words)
rest = found.rest[1:] if found.rest[:1] == ["--"] else found.rest
image = found.image if name == "shifter" else rest.pop(0)
json.dump({{"image": image, "binds": found.bind, "pwd": found.pwd, "command": rest}}, open(os.environ["SEEN"], "w"))
"""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Folders of a job, with blanks and quotes in their names."""
    made = {name: tmp_path / f"{name} of 'mine'" for name in ("run", "work", "data", "local", "scratch")}
    for folder in (*made.values(), tmp_path / "bin"):
        folder.mkdir()
    for name in ("apptainer", "shifter", "podman-hpc"):
        (tmp_path / "bin" / name).write_text(STAND_IN)
        (tmp_path / "bin" / name).chmod(0o755)
    return made


def parsed(kind: str, places: dict[str, Path], *more: str) -> Arguments:
    staging = [f"--staging-to={places['local']}/graphmill", f"--staging-via={places['scratch']}/graphmill"]
    return parse_arguments([f"--{kind}=an image", "--container-python=py", *staging, *more, str(places["run"])])


def started(command: list[str], tmp_path: Path) -> dict[str, object]:
    """What the stand-in saw, started as srun would start it."""
    seen = tmp_path / "seen.json"
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SEEN": str(seen)}
    subprocess.run(command[command.index("bash") :], check=True, env=environ)
    return json.loads(seen.read_text())


@pytest.mark.parametrize("kind", ["apptainer", "shifter", "podman-hpc"])
def test_ranks_and_staging_see_the_run_the_data_and_their_copies(kind: str, places: dict[str, Path], tmp_path: Path):
    arguments = parsed(kind, places, "--bind=/mnt", "--bind=/a:/b:ro")
    here = JobHere("17", 1, places["work"], places["data"])
    ranks = started(rank_command(arguments, places["run"], here, Rendezvous("localhost", 12345), 1), tmp_path)
    bound = {name: f"{path}:{path}" for name, path in places.items()}
    wanted = [
        bound["work"],
        bound["run"],
        bound["local"],
        bound["scratch"],
        f"{bound['data']}:ro",
        "/mnt:/mnt",
        "/a:/b:ro",
    ]
    assert ranks["binds"] == wanted
    assert (ranks["image"], ranks["pwd"]) == ("an image", str(places["work"]))
    assert ranks["command"] == ["py", "-P", "-m", "graphmill.train.worker", str(places["run"]), "--resume"]
    copies = started(staging_command(arguments, places["run"], here), tmp_path)
    assert copies["binds"] == wanted
    assert copies["command"][:4] == ["py", "-P", "-m", "graphmill.cluster.staging.stage"]


def test_pyxis_mounts_the_same(places: dict[str, Path]):
    here = JobHere("17", 1, places["work"], places["data"])
    command = rank_command(parsed("pyxis", places), places["run"], here, Rendezvous("localhost", 12345), 1)
    (mounts,) = [word for word in command if word.startswith("--container-mounts=")]
    assert f"{places['data']}:{places['data']}:ro" in mounts.partition("=")[2].split(",")


@pytest.mark.parametrize("letter", [",", ":"])
def test_a_folder_that_no_bind_can_name_is_refused(letter: str, places: dict[str, Path], tmp_path: Path):
    data = tmp_path / f"a{letter}b"
    with pytest.raises(UserError, match="cannot be seen inside a container"):
        rank_command(
            parsed("apptainer", places), places["run"], JobHere("17", 1, places["work"], data), Rendezvous("h", 1), 1
        )
