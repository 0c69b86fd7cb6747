"""The datasets that `prepare` knows by name."""

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.kind import KnownDataset
from graphmill.tasks.node_classification.page.data import DATASETS

OTHER_LAYOUTS = (
    "a .npz file with edge_index, y, x (or x_data x_indices x_indptr x_shape), train_mask val_mask test_mask or split;"
    " or a folder with edges.csv (src,dst) and nodes.csv (id,label,split, one column per feature), or both as .parquet"
)


def is_known(name: str) -> bool:
    """Whether `prepare` knows the name."""
    return any(dataset.name == name for dataset in DATASETS)


def known(name: str) -> KnownDataset:
    """The dataset of that name, or a `UserError` with the nearest one."""
    for dataset in DATASETS:
        if dataset.name == name:
            return dataset
    names = [dataset.name for kind in all_kinds() for dataset in kind.datasets]
    same_end = [known_name for known_name in names if known_name.rpartition("/")[2] == name]
    hint = f"did you mean {same_end[0]!r}?" if same_end else did_you_mean(name, names)
    raise UserError(
        f"no dataset is called {name!r}: {hint}",
        fix=f"prepare your own graph with --from PATH, where PATH is {OTHER_LAYOUTS}",
    )
