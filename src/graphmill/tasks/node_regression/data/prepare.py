"""Prepare a store under the dataset root from a raw graph whose nodes have values."""

import logging

from graphmill.base.errors import UserError
from graphmill.graph.header import is_prepared
from graphmill.tasks.node_regression.data.store import ValuesStore, write_values
from graphmill.tasks.node_regression.page.data import DATASETS, ValuesPrepareOptions
from graphmill.tasks.stores import Preparation, refuse_place, store_path

_log = logging.getLogger(__name__)
_OF_GENERATOR = ("num_nodes", "targets", "seed")


def prepare_requested(preparation: Preparation) -> ValuesStore:
    """Build the store that is asked for, whole or not at all; an existing one is kept, unless `force`."""
    options = preparation.options
    assert isinstance(options, ValuesPrepareOptions)
    stored = preparation.save_as or preparation.name
    path = store_path(stored, preparation.root)
    refuse_place(path, preparation.root)
    given = [name for name in _OF_GENERATOR if getattr(options, name) is not None]
    if given and preparation.name != DATASETS[0].name:
        raise UserError(f"{preparation.name} is not generated and takes no {', '.join(given)}", fix="leave them out")
    if not preparation.force and is_prepared(path):
        existing = ValuesStore.open(path)
        if preparation.from_path is not None or options.model_fields_set:
            raise UserError(
                f"{path} holds a prepared dataset", fix="rebuild it with --force, or keep both with --as NAME"
            )
        _log.info(f"{stored} is prepared already: {path}")
        return existing
    # Here and not above: planning a job opens a store in a blink.
    from graphmill.tasks.node_regression.data.read import read_values

    store = write_values(read_values(preparation.name, stored, preparation.from_path, options, preparation.root), path)
    known = store.metadata
    _log.info(
        f"y has {known.num_targets} value{'s' if known.num_targets > 1 else ''} of each node: numbers to be predicted,"
        " learnt in standard deviations of the training nodes"
    )
    if known.scales_differ:
        _log.info(
            "features: their columns are of unlike scale, so runs standardise them unless dataset.features=as_stored"
        )
    return store
