"""Which file holds the weights that the user names: those of a run, or of `init_from:`. Without torch."""

from collections.abc import Mapping
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import Report, WeightsFile, Which, run_weights
from graphmill.spec.weights import InitFromSpec, InitialWeights


def weights_of(folder: RunFolder, which: Which, report: Report) -> WeightsFile:
    """The best, or the last, weights of a run."""
    return WeightsFile.read(run_weights(folder.path, folder.checkpoints_dir, folder.plan_hash(), which, report))


def find_sources(specs: Mapping[str, InitFromSpec], report: Report) -> dict[str, InitialWeights]:
    """The weights that a task uses while it trains, by name."""
    found: dict[str, InitialWeights] = {}
    for name, each in specs.items():
        weights = find_initial_weights(each, report)
        if weights is None:
            raise UserError(f"sources.{name} names neither run nor file", fix=f"set sources.{name}.run, or remove it")
        found[name] = weights
    return found


def find_initial_weights(spec: InitFromSpec, report: Report) -> InitialWeights | None:
    """The initial weights of a run; None: random ones. `report(checkpoint, problem)`: called for damaged ones."""
    if not spec.is_given:
        return None
    source = Path(spec.run or spec.file).expanduser().absolute()
    found = weights_of(RunFolder.open(source), spec.weights, report) if spec.run else WeightsFile.read(source)
    return InitialWeights(
        source=str(source),
        path=str(found.path),
        checksum=found.checked(),
        include=spec.include,
        exclude=spec.exclude,
    )
