"""Which file holds the weights that the user names: those of a run, or of `init_from:`. Without torch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.record.manifest import Manifest
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Origin, Report, WeightsFile, Which, run_weights
from graphmill.spec.weights import InitFromSpec, InitialWeights


def weights_of(folder: RunFolder, which: Which, report: Report) -> WeightsFile:
    """The best, or the last, weights of a run; their origin is known even if graphmill 0.1.0 wrote them."""
    path = run_weights(folder.path, folder.checkpoints_dir, folder.plan_hash(), which, report)
    file = WeightsFile.read(path)
    if file.origin is not None:
        return file
    plan, manifest = folder.read_plan(), Manifest.read(path.parent)
    origin = Origin(
        run_id=plan.run_id,
        task=plan.task.kind,
        dataset=plan.dataset.name,
        step=manifest.steps_done,
        epoch=manifest.positions[0].epoch,
        plan_hash=manifest.plan_hash,
        measures={},
    )
    return replace(file, origin=origin)


def find_sources(asked: Mapping[str, InitFromSpec], report: Report) -> dict[str, InitialWeights]:
    """The weights that a task uses while it trains, by name."""
    found: dict[str, InitialWeights] = {}
    for name, each in asked.items():
        weights = find_initial_weights(each, report)
        if weights is None:
            raise UserError(f"sources.{name} names neither run nor file", fix=f"set sources.{name}.run, or remove it")
        found[name] = weights
    return found


def find_initial_weights(asked: InitFromSpec, report: Report) -> InitialWeights | None:
    """The initial weights of a run; None: random ones. `report(checkpoint, problem)`: called for damaged ones."""
    if not asked.is_given:
        return None
    source = Path(asked.run or asked.file).expanduser().absolute()
    found = weights_of(RunFolder.open(source), asked.weights, report) if asked.run else WeightsFile.read(source)
    return InitialWeights(
        source=str(source),
        path=str(found.path),
        checksum=found.checked(),
        include=asked.include,
        exclude=asked.exclude,
    )
