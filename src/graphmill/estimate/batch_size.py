"""How large may a batch be? Looked for by formula, by measuring a step, or by trying whole steps in child processes."""

import logging
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphmill.base.amounts import gib, mib_of
from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.python import python_m
from graphmill.estimate.cache import Estimates
from graphmill.estimate.search import predicted_mib, search
from graphmill.record.run_folder import plan_text
from graphmill.spec.batch import BatchSpec, GraphBatchSpec, GraphSizes, MemoryBudget, Sizing, TriedSize
from graphmill.spec.experiment import Experiment
from graphmill.spec.modelled import modelled
from graphmill.spec.plan import Plan, refuse_sizing_with_roles

_log = logging.getLogger(__name__)

_MEASURED_WITH: Final = 64  # seeds, or graphs of mean size
_EPOCHS: Final = 10  # of a trial's plan: so many may be looked through for the largest batches
_OUT_OF_MEMORY: Final = (-signal.SIGKILL, -signal.SIGABRT)  # the kernel ended it, or an allocation in C++ failed
_AT_A_LIMIT: Final = (*_OUT_OF_MEMORY, -signal.SIGSEGV)  # or one that a library took for granted, or that of a stack

PlanOf = Callable[[Experiment], Plan]


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Finds sizes, and remembers them in the logs root. `may_try`: whether steps may be made here."""

    logs_root: Path
    may_try: bool = True

    def plan(self, experiment: Experiment, plan_of: PlanOf) -> Plan:
        """The plan of an experiment, with the size of its batches found if it asks for that.

        Raises `UserError` if not even the least size fits, or the size would have to be tried where that is not done.
        """
        if experiment.train.sizing is None:
            return plan_of(experiment)
        found, sizes = self.find(experiment, plan_of)
        plan = plan_of(sized(experiment, found.safe, sizes))
        return plan.model_copy(update={"memory_budget": found})

    def find(self, experiment: Experiment, plan_of: PlanOf) -> tuple[MemoryBudget, GraphSizes | None]:
        """What was found before for the same content, or is found now, and kept; sizes of graphs, if counted."""
        refuse_sizing_with_roles(experiment)
        search = _Search.of(experiment, plan_of)
        estimates = Estimates(self.logs_root, keep=self.may_try)
        known = estimates.find(MemoryBudget, *search.key)
        if known is not None:
            path = estimates.path(*search.key)
            _log.info(f"batch size: safe={known.safe} {known.unit}, found before ({path})")
            return known, search.sizes
        if search.mode != "static" and not self.may_try:
            raise UserError(
                f"train.batch.mode is {search.mode}, and no steps are tried here to find the size",
                fix="find it first, on such a machine, with the same options and logs root: `graphmill batch-size"
                " EXPERIMENT`; or give train.batch_size",
            )
        found = search.run()
        estimates.keep(found, *search.key)
        return found, search.sizes


def sized(experiment: Experiment, size: int, sizes: GraphSizes | None, *, epochs: int | None = None) -> Experiment:
    """The experiment with batches of `size` seeds; where there are `sizes`, of a budget of as many graphs of mean size.

    `epochs`: for a trial in one process; None: as long, and on as many ranks, as it was.
    """
    update: dict[str, Any] = {"batch_size": size, "batch": BatchSpec()}
    if sizes is not None:
        max_nodes, max_edges = sizes.budget_of(size)
        budget = GraphBatchSpec(mode="budget", max_nodes=max_nodes, max_edges=max_edges)
        update = {"batch_size": "auto", "batch": budget}
    if epochs is not None:
        update |= {"ranks": 1, "epochs": epochs, "max_steps": None}
    given = experiment.train.model_copy(update=update)
    return experiment.model_copy(update={"train": given})


@dataclass(frozen=True, slots=True)
class _Search:
    """The search of one experiment, in one process at a time."""

    experiment: Experiment
    plan_of: PlanOf
    spec: BatchSpec
    mode: Sizing
    sizes: GraphSizes | None  # None: seeds are counted
    full_plan: Plan  # with the least size
    least: int
    most: int

    @classmethod
    def of(cls, experiment: Experiment, plan_of: PlanOf) -> "_Search":
        spec = experiment.train.batch
        one = experiment.model_copy(
            update={"train": experiment.train.model_copy(update={"batch_size": spec.min, "batch": type(spec)()})}
        )
        dataset = plan_of(one).dataset
        sizes = dataset if isinstance(dataset, GraphSizes) and isinstance(spec, GraphBatchSpec) else None
        least = spec.min if sizes is None else max(spec.min, sizes.largest)
        most = min(spec.max, dataset.num_train)
        whole = plan_of(sized(experiment, least, sizes))
        return cls(experiment, plan_of, spec, experiment.train.sizing or "trial", sizes, whole, least, max(least, most))

    @property
    def key(self) -> tuple[Plan, str, list[object], bool]:
        """Key of the result: all that it depends on and that is known before. The run's length is not part of it."""
        bounds: list[object] = [self.mode, self.least, self.most, self.spec.target, self.spec.memory]
        return self._tried(self.least), "batch size", bounds, self.full_plan.ranks > 1

    @property
    def limit_mib(self) -> float | None:
        """What a rank may use; None: what is free on its GPU, which only a rank can tell."""
        if self.spec.memory is None:
            if self.full_plan.device == "cuda" and self.mode != "static":
                return None
            raise UserError(
                f"train.batch.mode is {self.mode}, and it is not said how much memory a rank may use",
                fix="--memory-budget 2G, or train.batch.memory=2G",
            )
        found = mib_of(self.spec.memory)
        if not found:
            raise UserError(f"train.batch.memory is {self.spec.memory!r}", fix="write it as 2G, or 1500M")
        return found

    def run(self) -> MemoryBudget:
        """Find the budget by the mode that was asked for."""
        return {"static": self._by_formula, "measured": self._by_a_step, "trial": self._by_trial}[self.mode]()

    def _by_formula(self) -> MemoryBudget:
        limit = self.limit_mib
        assert limit is not None

        def peak_mib(size: int) -> float:
            plan = self.plan_of(sized(self.experiment, size, self.sizes))
            figures = modelled(plan)
            if figures.memory_per_rank_mib is None:
                raise UserError(
                    "train.batch.mode is static, and no formula knows the size of a model by dotted path",
                    fix="set train.batch.mode=trial",
                )
            return figures.memory_per_rank_mib

        low, high = self.least, self.most + 1
        if peak_mib(low) > limit:
            raise self._too_little(limit, peak_mib(low))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if peak_mib(middle) <= limit else (low, middle)
        safe = self._safe(low)
        return self._budget(
            limit, low, safe, peak_mib(safe), (), {"activations": modelled(self.full_plan).memory.activations_mib}
        )

    def _by_a_step(self) -> MemoryBudget:
        size = min(self.most, max(self.least, _MEASURED_WITH))
        limit = self.limit_mib
        found = self._child(size, limit, "--step")
        if limit is None:
            raise UserError("train.batch.mode=measured needs train.batch.memory", fix="--memory-budget 40G")
        before, step = found["before_mib"] + self._of_others_mib, found["step_mib"] / size
        if before + step * self.least > limit:
            raise self._too_little(limit, before + step * self.least)
        fits = min(self.most, int((limit - before) / step)) if step > 0 else self.most
        safe = self._safe(fits)
        assumed = self._assumed | {"a step, in proportion to its size": found["step_mib"], "saved": found["saved_mib"]}
        return self._budget(limit, fits, safe, before + step * safe, (), assumed)

    def _by_trial(self) -> MemoryBudget:
        known, by_batches, limit = search(self._try, self._num_batches, self.least, self.most)
        fitting = [attempt.size for attempt in known if attempt.fits]
        if not fitting:
            raise self._too_little(limit, known[0].peak_mib)
        fits = max(fitting)
        safe = self._safe(fits)
        _log.info(f"Trial batch size: max_fit={fits}, safe={safe}")
        held = {self._share(batches): attempt for batches, attempt in by_batches.items()}
        predicted = predicted_mib(held, self._share(self._num_batches(safe)))
        return self._budget(limit, fits, safe, predicted, tuple(by_batches.values()), self._assumed)

    def _try(self, size: int) -> tuple[TriedSize, float]:
        found = self._child(size, self.limit_mib)
        limit = self.limit_mib or float(found["limit_mib"])
        attempt = self._attempt(size, limit, found)
        _log.info(_attempt_text(attempt, limit))
        return attempt, limit

    def _num_batches(self, size: int) -> int:
        """Batches of an epoch with batches up to `size`: equal numbers of batches mean equally large batches."""
        plan = self._tried(size)
        return plan.budget.num_batches if plan.budget is not None else size

    def _share(self, num_batches: int) -> float:
        """What one batch holds, in any unit."""
        return 1 / num_batches if self.sizes is not None else num_batches

    def _attempt(self, size: int, limit: float, measured: Mapping[str, Any]) -> TriedSize:
        peak = None if measured["peak_mib"] is None else float(measured["peak_mib"]) + self._of_others_mib
        max_nodes, max_edges = (None, None) if self.sizes is None else self.sizes.budget_of(size)
        return TriedSize(
            size=size,
            max_nodes=max_nodes,
            max_edges=max_edges,
            peak_mib=None if peak is None else round(peak, 2),
            fits=peak is not None and peak <= limit,
            num_steps=measured["num_steps"],
            wall_s=measured["wall_s"],
        )

    @property
    def _of_others_mib(self) -> float:
        return sum(self._assumed.values())

    @property
    def _assumed(self) -> dict[str, float]:
        """What a trial in one process does not hold: the scheme's exchange of gradients."""
        parameters = modelled(self.full_plan).num_parameters
        if self.full_plan.ranks == 1 or parameters is None:
            return {}
        return {"exchange between ranks": 2 * parameters * 4 / 2**20}

    def _safe(self, fits: int) -> int:
        return max(self.least, int(fits * self.spec.target))

    def _child(self, size: int, limit_mib: float | None, *more: str) -> dict[str, Any]:
        """What `graphmill.train.try_batch` found with such batches, in a process of its own."""
        plan = self._tried(size)
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="graphmill-plan-") as file:
            file.write(plan_text(plan))
            file.flush()
            command = python_m("graphmill.train.try_batch", file.name, str(limit_mib or 0), *more)
            child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode in (_OUT_OF_MEMORY if limit_mib is None else _AT_A_LIMIT):
            return {"peak_mib": None, "limit_mib": limit_mib, "num_steps": 0, "wall_s": 0.0}
        last = child.stdout.splitlines()[-1] if child.stdout.strip() else ""
        found: dict[str, Any] = parse_json(last) if last.startswith("{") else {}
        if "error" in found:
            raise UserError(**found["error"])
        if not found:
            sys.stderr.write(child.stderr)
            raise UserError(
                f"batches of {size} could not be tried (exit status {child.returncode}); the error is above",
                fix="correct it, or give train.batch_size",
            )
        return found

    def _tried(self, size: int) -> Plan:
        """What one process tries."""
        return self.plan_of(sized(self.experiment, size, self.sizes, epochs=_EPOCHS))

    def _too_little(self, limit: float, peak: float | None) -> UserError:
        needs = "more than that" if peak is None else f"{gib(peak)} GiB"
        what = f"batches of {self.least} seeds"
        if self.sizes is not None:
            what = f"batches of {self.sizes.budget_of(self.least)[0]:,} nodes"
            if self.sizes.largest > self.spec.min:
                what += f" (the largest graph has {self.sizes.max_nodes:,} nodes and {self.sizes.max_edges:,} edges)"
        return UserError(
            f"a rank may use {gib(limit)} GiB, and {what} take {needs}",
            fix="allow more (--memory-budget), a smaller model, a lower train.batch.min, or data without such graphs",
        )

    def _budget(
        self,
        limit: float,
        fits: int,
        safe: int,
        predicted: float,
        attempts: tuple[TriedSize, ...],
        assumed: dict[str, float],
    ) -> MemoryBudget:
        max_nodes, max_edges = (None, None) if self.sizes is None else self.sizes.budget_of(safe)
        return MemoryBudget(
            mode=self.mode,
            unit="seeds" if self.sizes is None else "graphs of mean size",
            device=self.full_plan.device,
            limit_mib=limit,
            target=self.spec.target,
            min=self.spec.min,
            max=self.spec.max,
            assumed=assumed,
            attempts=attempts,
            max_fit=fits,
            safe=safe,
            max_nodes=max_nodes,
            max_edges=max_edges,
            predicted_mib=round(predicted, 2),
        )


def _attempt_text(attempt: TriedSize, limit_mib: float) -> str:
    held = "ran out of memory" if attempt.peak_mib is None else f"{attempt.peak_mib:,.0f} MiB"
    return f"batch size {attempt.size}: {held} of {limit_mib:,.0f} MiB, {'fits' if attempt.fits else 'too large'}"
