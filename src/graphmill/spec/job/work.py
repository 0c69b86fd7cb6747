"""What a job runs: runs to train, stages of a pipeline, a command, or a look at its hosts."""

from typing import Final, Literal

from pydantic import Field

from graphmill.config.frozen import Spec

OURS: Final = "graphmill"
"""The first word of our own commands: the job's interpreter runs them, whatever is on its PATH."""


class Begin(Spec):
    """How a job makes its own run folder, for `graphmill script`, when no run exists yet."""

    experiment: str | None = Field(
        None, description="a recipe or a file, as seen from the folder that the job works in"
    )
    overrides: tuple[str, ...] = Field((), description="key=value, laid over the experiment")
    logs_root: str = Field("logs", description="where the run folder is made")
    dataset_root: str | None = Field(None, description="where prepared datasets are; null: by the environment")


class TrainRuns(Spec):
    """Runs that exist, or one that the job makes as `begin` says."""

    kind: Literal["runs"] = "runs"
    run_folders: tuple[str, ...] = Field(description="one; several for an array, by index; none: the job makes it")
    begin: Begin | None
    side_by_side: int = Field(1, description="runs that share the job, each with the hosts and amounts of the job")


class RunStages(Spec):
    """Stages of a pipeline."""

    kind: Literal["stages"] = "stages"
    folder: str = Field(description="of the pipeline, in the logs root; it holds pipeline.json")
    stages: tuple[str, ...] = Field(description="in order; unfinished ones before them are continued first")
    hands_over: bool = Field(description="what is not finished at the time limit is left to the next job of the chain")


class Command(Spec):
    """The content of command.json; a job has it, too."""

    words: tuple[str, ...] = Field(description="the program and its arguments; no shell reads them")
    data: str | None = Field(None, description="prepared data that it reads, which are staged first; null: none")

    @property
    def goes_on(self) -> bool:
        """Whether it knows where it was cut off, so that a job may begin it again by itself."""
        return self.words[:2] == (OURS, "tune")

    @property
    def is_ours(self) -> bool:
        """Whether it is one of graphmill's own, whose exit statuses say what they say of a run."""
        return self.words[0] == OURS


class RunCommand(Spec):
    """A command in place of training (`submit --run`)."""

    kind: Literal["command"] = "command"
    folder: str = Field(description="with command.json; like that of a run in all else")
    command: Command


class ExamineHosts(Spec):
    """A look at the hosts in place of training (`doctor --hosts`)."""

    kind: Literal["hosts"] = "hosts"
    folder: str = Field(description="what is found is written here")


Work = TrainRuns | RunStages | RunCommand | ExamineHosts
