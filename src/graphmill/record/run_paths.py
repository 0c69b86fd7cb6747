"""Where each file of a run is, by what it holds."""

from dataclasses import dataclass
from pathlib import Path

from graphmill.spec.dotted import PLAN_FILE
from graphmill.spec.roles import RoleRank

COMMAND_FILE = "command.json"  # in the folder of a job that runs a command in place of training

COMMAND_VARIABLE = "GRAPHMILL_COMMAND_FOLDER"  # where the command that a job runs finds that folder


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of `<logs root>/<run id>/`, whether they are there or not."""

    path: Path

    def logs_root(self, run_id: str) -> Path:
        """Where runs are: this path without the run id, which may be nested (`sweep/one`).

        Where the path does not end with the id, as of a copy, its parent.
        """
        path, names = self.path.absolute(), Path(run_id).parts
        return path.parents[len(names) - 1] if path.parts[-len(names) :] == names else path.parent

    @property
    def plan_path(self) -> Path:
        """The plan: what the ranks read."""
        return self.path / PLAN_FILE

    @property
    def provenance_path(self) -> Path:
        """Where, when and with what the run began."""
        return self.path / "provenance.json"

    @property
    def memory_budget_path(self) -> Path:
        """How the size of the batches was found, where it was not given (`spec.memory_budget.MemoryBudget`)."""
        return self.path / "memory_budget.json"

    @property
    def attempts_path(self) -> Path:
        """One line per start of the run."""
        return self.path / "attempts.jsonl"

    @property
    def events_dir(self) -> Path:
        """Folder of rank_<r>.jsonl."""
        return self.path / "events"

    @property
    def metrics_path(self) -> Path:
        """One row per epoch, written by rank 0."""
        return self.path / "metrics.csv"

    @property
    def evaluations_path(self) -> Path:
        """One row per epoch, evaluation set and measure, written by rank 0."""
        return self.path / "evaluations.csv"

    @property
    def checkpoints_dir(self) -> Path:
        """Folder of step_<steps of a rank, 10 digits>/."""
        return self.path / "checkpoints"

    @property
    def outcome_path(self) -> Path:
        """How the run ended."""
        return self.path / "outcome.json"

    @property
    def job_path(self) -> Path:
        """The job: every choice its script was rendered from."""
        return self.path / "job.json"

    @property
    def command_path(self) -> Path:
        """What a job runs in place of training (`spec.job.work.Command`): such a folder has no plan."""
        return self.path / COMMAND_FILE

    @property
    def runs_of_command_path(self) -> Path:
        """Where the runs are that this command trains, and by which it is seen to get on; of `graphmill tune` only."""
        return self.path / "runs.json"

    @property
    def initial_weights_path(self) -> Path:
        """The run's own copy of the weights that it begins with, if its plan has `init_from`."""
        return self.path / "initial_weights.safetensors"

    def source_path(self, name: str) -> Path:
        """The run's own copy of weights that its task uses, if its plan has `sources`."""
        return self.path / f"source_{name}.safetensors"

    @property
    def script_path(self) -> Path:
        """What sbatch was given."""
        return self.path / "job.sbatch"

    @property
    def jobs_path(self) -> Path:
        """One line per job that was submitted for this run."""
        return self.path / "jobs.jsonl"

    @property
    def monitor_dir(self) -> Path:
        """Folder of <hostname>.csv: what a host used while the job ran."""
        return self.path / "monitor"

    @property
    def staged_dir(self) -> Path:
        """Folder of <hostname>.json: what was copied to a host, and what that took."""
        return self.path / "staged"

    def checked_path(self, hostname: str) -> Path:
        """Which data one host has read to compare their checksums."""
        return self.path / "checked" / f"{hostname}.json"

    @property
    def sacct_path(self) -> Path:
        """What the batch system accounted for the run's jobs."""
        return self.path / "sacct.json"

    @property
    def sacct_ended_path(self) -> Path:
        """What the batch system accounted once the jobs had ended, as `pull` got it from their cluster."""
        return self.path / "sacct_ended.json"

    @property
    def pulled_path(self) -> Path:
        """Where the folder was fetched from, and what was left there: of a copy that `pull` made."""
        return self.path / "pulled.json"

    @property
    def sacct_summary_path(self) -> Path:
        """What the batch system accounted, as a table."""
        return self.path / "sacct_summary.txt"

    @property
    def epilog_path(self) -> Path:
        """What was measured while the job ran, in numbers."""
        return self.path / "epilog.json"

    @property
    def epilog_text_path(self) -> Path:
        """What was measured while the job ran, as text with advice."""
        return self.path / "epilog.txt"

    @property
    def profile_dir(self) -> Path:
        """Folder of what `train.profile` recorded: traces of the ranks, and phases.json once all of them are whole."""
        return self.path / "profiler_traces"

    @property
    def stop_path(self) -> Path:
        """File that exists while the run is asked to stop: a job that sees it does not requeue or resubmit itself."""
        return self.path / "stop"

    def job_log_path(self, job_id: str) -> Path:
        """What the script of one job printed."""
        return self.path / f"slurm-{job_id}.out"

    def monitor_path(self, hostname: str) -> Path:
        """What one host used while the job ran."""
        return self.monitor_dir / f"{hostname}.csv"

    def staged_path(self, hostname: str) -> Path:
        """What was copied to one host."""
        return self.staged_dir / f"{hostname}.json"

    def trace_path(self, rank: int) -> Path:
        """What torch's profiler recorded of one rank, with graphmill's spans."""
        return self.profile_dir / f"rank_{rank}.pt.trace.json.gz"

    def events_path(self, rank: int) -> Path:
        """What one rank appended."""
        return self.events_dir / f"rank_{rank}.jsonl"

    def events_path_of(self, role_rank: RoleRank) -> Path:
        """What one process of either role appended."""
        return self.events_dir / f"{role_rank.stem}.jsonl"

    def log_path(self, rank: int) -> Path:
        """What one rank printed."""
        return self.path / f"rank_{rank}.log"

    def log_path_of(self, role_rank: RoleRank) -> Path:
        """What one process of either role printed."""
        return self.path / f"{role_rank.stem}.log"
