"""What is asked of Slurm: words that sbatch would refuse, or misread, are refused before a script is written."""

from pathlib import Path
from typing import Any

from rows.mishap import Mishap


def asked(options: str, *says: str, **more: Any) -> Mishap:
    return Mishap(f"job: {options}", f"script toy.yaml {options}", says, **more)


def on_a_site(name: str, profile: str, options: str, *says: str, **more: Any) -> Mishap:
    def make(folder: Path) -> None:
        (folder / "site.yaml").write_text(profile)

    return Mishap(f"site: {name}", f"script toy.yaml --site site.yaml {options}", says, make, **more)


ROWS = [
    asked("--time soon", "time", "soon"),
    asked("--time 10h", "time", "10h"),
    asked("--time 0", "time", "0"),
    asked("--time -5", "time", "-5"),
    asked("--time 1:2:3:4", "time", "1:2:3:4"),
    asked("--site devcluster --time 100-00:00:00", "time", "100-00:00:00"),
    asked("--mem lots", "mem", "lots"),
    asked("--mem 4GB!", "mem", "4GB!"),
    asked("--mem -1", "mem", "-1"),
    asked("--hosts 0", "hosts", "0"),
    asked("--hosts many", "--hosts"),
    asked("--ranks-per-host 0", "ranks_per_host", "0"),
    asked("--cpus-per-host -2", "cpus", "-2"),
    asked("--site devcluster --hosts 400", "400"),
    asked("--partition 'a b'", "partition", "a b"),
    asked("--mail-type ALWAYS", "ALWAYS"),
    asked("--mail-user nobody --mail-type SOMETIMES", "SOMETIMES"),
    asked("--signal USR2", "--signal"),
    asked("--env API_KEY=x", "API_KEY"),
    asked("--env 1A=2", "1A"),
    asked("--port 99999999", "port", "99999999"),
    asked("--launcher mpirun", "mpirun", "srun"),
    asked("--setup-line 'exit 1\nx'", "setup"),
    asked("--sbatch-arg --array=1-4", "array"),
    asked("--sbatch-arg time=1", "time=1"),
    asked("--nodes-list 1 two", "two"),
    asked("--work-dir 'a\nb'", "work"),
    asked("--container x.sif", "--container"),
    asked("-O slurm.container.kind=docker", "docker", "apptainer"),
    asked("-O slurm.on_time_limit=again", "again", "resubmit"),
    asked("-O slurm.max_requeues=-1", "slurm.max_requeues", "-1"),
    asked("-O slurm.tiem=5", "tiem", "time"),
    on_a_site("no file", "", "--site missing.yaml", "missing.yaml"),
    on_a_site("empty", "", "", "site.yaml"),
    on_a_site("an unknown key", "name: x\npartitons: {}\n", "", "partitons", "partitions"),
    on_a_site("a list", "- a\n", "", "site.yaml"),
    Mishap(
        "job: an experiment is not named",
        "script --job-name-prefix reddit-strong",
        ("no experiment is named", "debian-packages-sage"),
        status=0,
    ),
    Mishap("job: no sbatch here", "submit toy.yaml --run-id one", ("sbatch",)),
    Mishap("job: more memory for no run", "submit --resume nothing --mem 2G", ("nothing",)),
    Mishap("job: a study one at a time, and none", "study submit study-demo --at-once 0", ("--at-once", "1")),
]
