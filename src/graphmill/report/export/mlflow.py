"""MLflow: one run in the experiment `target.project`, in the store at the tracking URI (`sqlite:///mlflow.db`).

A run is found again by its tag `graphmill.identity`. Exported again, only points whose step and name are not there yet
are added (MLflow cannot take one back), and tags, status and end are set anew. So nothing is doubled; an epoch that a
resumed run did once more keeps the times of the first. MLflow 3 refuses its former store of files (`file:`), so the
default is a SQLite database, for which `mlflow-skinny` needs sqlalchemy and alembic.
"""

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlflow.entities import Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from graphmill.base.errors import UserError
from graphmill.record.endings import ENDINGS
from graphmill.report.export.tracker import Change, LoggedValue, Target, TrackerRun

_log = logging.getLogger(__name__)
_IDENTITY: Final = "graphmill.identity"
_NAME: Final = "mlflow.runName"
_MOST_METRICS: Final = 1000  # of one call of log_batch
_MOST_PARAMS: Final = 100
_LONGEST_PARAM: Final = 6000  # characters of a value
_FORBIDDEN: Final = re.compile(r"[^\w\-./: ]")


def open_target(target: Target) -> "MlflowStore":
    """The store at the tracking URI `target.place`. Nothing is made yet."""
    for name in ("mlflow", "alembic"):  # they tell each step of making a database
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowStore(target.place or "sqlite:///mlflow.db", target.project)


@dataclass(frozen=True, slots=True)
class MlflowStore:
    """One experiment of a tracking store."""

    uri: str
    project: str

    def planned(self, run: TrackerRun) -> Change:
        """Look for the run. A SQLite file that is not there yet holds none, and is not made."""
        _params(run)
        experiment = None if self._is_absent() else self._experiment()
        known = None if experiment is None else self._known(run, experiment)
        if known is None:
            return Change(run.name, "new", len(run.points), self._place())
        num_new = len(self._new_points(run, known))
        return Change(run.name, "added to" if num_new else "unchanged", num_new, self._place())

    def write(self, run: TrackerRun) -> None:
        """Make the run if it is not there; add what is new."""
        client, experiment = self._client(), self._experiment()
        where = client.create_experiment(self.project) if experiment is None else experiment.experiment_id
        known = None if experiment is None else self._known(run, experiment)
        if known is None:
            tags = {_IDENTITY: run.identity}
            known = client.create_run(where, start_time=_ms(run.began), tags=tags, run_name=run.name)
        run_id, params = known.info.run_id, _params(run)
        for param in params:
            if len(param.value) == _LONGEST_PARAM:
                _log.info(f"{param.key} of {run.name} is shortened for MLflow: its beginning, length and SHA-256")
        for begin in range(0, len(params), _MOST_PARAMS):
            client.log_batch(run_id, params=params[begin : begin + _MOST_PARAMS])
        metrics = [Metric(_key(p.name), p.value, _ms(p.time), p.step) for p in self._new_points(run, known)]
        for begin in range(0, len(metrics), _MOST_METRICS):
            client.log_batch(run_id, metrics=metrics[begin : begin + _MOST_METRICS])
        client.log_batch(run_id, tags=[RunTag(name, value) for name, value in run.tags.items()])
        if run.ended is None:
            client.update_run(run_id, status="RUNNING")
        else:
            client.set_terminated(run_id, _status(run), end_time=_ms(run.ended))

    def _is_absent(self) -> bool:
        return self.uri.startswith("sqlite:///") and not Path(self.uri.removeprefix("sqlite:///")).exists()

    def _place(self) -> str:
        return f"{self.uri}, experiment {self.project}"

    def _client(self) -> MlflowClient:
        try:
            return MlflowClient(tracking_uri=self.uri)
        except MlflowException as error:
            raise UserError(
                f"MLflow cannot use the tracking URI {self.uri}: {error.message}",
                fix="--tracking-uri sqlite:///mlflow.db, or the address of a tracking server",
            ) from None

    def _experiment(self) -> Experiment | None:
        try:
            found: Experiment | None = self._client().get_experiment_by_name(self.project)
        except MlflowException as error:  # a server that does not answer
            raise UserError(
                f"MLflow at {self.uri} does not answer: {error.message}", fix="check --tracking-uri"
            ) from None
        if found is not None and found.lifecycle_stage != "active":
            raise UserError(f"the MLflow experiment {self.project} was deleted", fix="restore it, or give --project")
        return found

    def _known(self, run: TrackerRun, experiment: Experiment) -> Run | None:
        """The run as it was exported before. `UserError` if another has its name."""
        named = f"tags.`{_NAME}` = '{run.name}'"
        found = self._client().search_runs([experiment.experiment_id], filter_string=named)
        ours = [known for known in found if known.data.tags.get(_IDENTITY) == run.identity]
        if found and not ours:
            raise UserError(
                f"the MLflow experiment {self.project} has another run called {run.name}",
                fix="give --project, or delete that run in MLflow",
            )
        return ours[0] if ours else None

    def _new_points(self, run: TrackerRun, known: Run) -> list[LoggedValue]:
        """The points that the store does not have."""
        client = self._client()
        steps = {
            name: {metric.step for metric in client.get_metric_history(known.info.run_id, name)}
            for name in known.data.metrics
        }
        return [point for point in run.points if point.step not in steps.get(_key(point.name), ())]


def _params(run: TrackerRun) -> list[Param]:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in run.params.items()
    }
    for name, text in texts.items():
        if len(text) > _LONGEST_PARAM:
            texts[name] = _shortened(text)
    _refuse_same_keys(run, texts)
    return [Param(_key(name), text) for name, text in texts.items()]


def _shortened(text: str) -> str:
    """What MLflow takes of a long value: its beginning, and what tells it from others that begin so."""
    end = f"... ({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()})"
    return text[: _LONGEST_PARAM - len(end)] + end


def _refuse_same_keys(run: TrackerRun, texts: Mapping[str, str]) -> None:
    for names in (list(texts), list(dict.fromkeys(point.name for point in run.points))):
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(_key(name), name)
            if other != name:
                raise UserError(
                    f"{other} and {name} of {run.name} are both {_key(name)} in MLflow, which allows fewer characters",
                    fix="export this run to another tracker",
                )


def _key(name: str) -> str:
    """A name with the characters that MLflow allows."""
    return _FORBIDDEN.sub("_", name)


def _status(run: TrackerRun) -> str:
    """Status of the run in MLflow's words; KILLED: the run may be resumed."""
    assert run.ending is not None
    if run.ending == "done":
        return "FINISHED"
    return "KILLED" if ENDINGS[run.ending].resumable else "FAILED"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
