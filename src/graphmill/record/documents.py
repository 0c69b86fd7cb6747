"""What a run folder keeps as JSON of its starts, its jobs and its end, and how such a document is read."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from graphmill.base.errors import UserError
from graphmill.base.foreign import quoted
from graphmill.base.json_text import parse_json
from graphmill.base.retries import retried
from graphmill.record.endings import EndingName
from graphmill.runtime.trust import note_read
from graphmill.spec.world import World

M = TypeVar("M", bound=BaseModel)
Quoted = Annotated[str, AfterValidator(quoted)]
"""A text that others may have written, and that stands in messages."""


BaselineScores = dict[str, dict[str, dict[str, float]]]
"""Split, baseline, measure → value; empty of a run that recorded none."""


class Outcome(BaseModel):
    """How a run ended: outcome.json. A run without one is running, or was killed before it could write it."""

    # a measure may be undefined, and null is not a number
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="strings")

    status: EndingName
    exit_code: int
    epochs: int = Field(description="epochs completed")
    steps_per_rank: int = Field(description="steps of each rank completed, over all attempts")
    test: dict[str, float | int] | None = Field(None, description="measures on the test split, by the best checkpoint")
    baselines: BaselineScores = Field({}, description="measures of baselines on the validation and the test split")
    best: dict[str, float | int] | None = Field(None, description="measures on the validation split, and their epoch")
    wall_s: float = Field(description="of this attempt")
    message: Quoted = ""
    may_pass: bool = Field(False, description="a failure that another try may mend: a signal ended a rank, or srun")
    stopped_early: bool = Field(False, description="done before the planned end: the measure no longer improved")
    elastic: Quoted = Field("", description="which ranks did which steps, where not all had the planned number of them")


class Attempt(BaseModel):
    """One start of a run: a line of attempts.jsonl."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    time: float = Field(description="Unix time, s")
    hostname: Quoted
    pid: int = Field(description="of the launcher")
    resumed: bool
    command: tuple[str, ...]
    job_id: Quoted = Field("", description="the scheduler's, where there is one")
    code: str = Field(description="checksum of graphmill's own files")
    own_code: str = Field("", description="SHA-256 of the copy that the user's code is imported from; empty: none")
    steps_saved: int | None = Field(
        0, description="steps of each rank in the checkpoint that it began with; null: checkpoints could not be read"
    )
    world: World | None = Field(None, description="its processes; null: those of the plan")
    is_second_in_job: bool = Field(False, description="other runs had used a part of the job's time before it")
    is_retry: bool = Field(False, description="the one before it had failed, in a way that another try may mend")


class SubmittedJob(BaseModel):
    """One job of a batch system that runs, or ran, this run: a line of jobs.jsonl."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    job_id: Quoted = Field(description="as Slurm says it: 17, or 17_3 for a task of an array")
    time: float = Field(description="Unix time, s")
    cluster: Quoted = Field("", description="name of the cluster, if sbatch printed one")
    how: Literal["submit", "requeue", "resubmit"] = "submit"
    dependency: Quoted = Field("", description="what the job waits for: sbatch's --dependency")
    changes: tuple[str, ...] = Field((), description="what it asks for otherwise than the run's job before it")
    side_by_side: int = Field(1, description="runs that share the job, this one included")


class Pulled(BaseModel):
    """pulled.json: what `pull` fetched a run folder from."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    source: str = Field(description="[USER@]HOST:PATH of the run folder")
    checkpoints: bool = Field(description="whether checkpoints were asked for, once at least")


def json_of(document: BaseModel) -> Any:  # noqa: ANN401  # any JSON value
    """JSON value of a document: NaN and infinity become text, where the model says so."""
    return parse_json(document.model_dump_json())


def read_document(path: Path, model: type[M], fix: str) -> M:
    """The document in `path`; `UserError` with `fix` if it is absent, or is not such a document.

    Raises `UnreadableError` after an I/O error: the document may be whole, and `fix` is for one that is not.
    Code that it names is run only if the person named it (`runtime.trust`).
    """
    try:
        content = retried(path, Path.read_bytes)
        note_read(path, _parsed(content))
        return model.model_validate_json(content)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", fix=fix) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is damaged: {quoted((where + ': ' if where else '') + first['msg'])}", fix=fix
        ) from None


def _parsed(content: bytes) -> object:
    """What the model will read, by the parser that it reads with; None: that will say what is wrong."""
    try:
        return from_json(content)
    except ValueError:
        return None
