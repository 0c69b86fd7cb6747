"""A launch file of GraphLearn-for-PyTorch (GLT: nodes, ports, usernames, …) read as a hosts.yaml."""

from collections.abc import Mapping
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.config.problems import KeyPath, Problem, refuse
from graphmill.config.yaml_text import Document

KEYS: Final = {
    "nodes": "address",
    "ports": "port",
    "usernames": "user",
    "python_bins": "python",
    "dst_paths": "directory",
    "visible_devices": "devices",
}
_OF_THE_EXPERIMENT: Final = ("dataset", "in_channel", "out_channel", "dataset_root_dir", "epochs", "batch_size")


def is_of_seed(value: Mapping[str, Any]) -> bool:
    """Whether a document is such a launch file."""
    return "nodes" in value and "hosts" not in value


def from_seed(document: Document) -> tuple[Document, tuple[str, ...]]:
    """The same hosts in our form, lines kept, and remarks on what was changed or ignored."""
    nodes = document.value["nodes"]
    if not isinstance(nodes, list) or not nodes:
        raise UserError(f"{document.source}: nodes is not a list of addresses", fix="list the hosts under nodes:")
    refuse(_problems(document, len(nodes)), document.source)
    hosts: list[dict[str, Any]] = [{} for _ in nodes]
    lines: dict[KeyPath, int] = {}
    for theirs, ours in KEYS.items():
        for index, value in enumerate(document.value.get(theirs, [])):
            hosts[index][ours] = value
            lines["hosts", index, ours] = document.lines[theirs, index]
            lines.setdefault(("hosts", index), document.lines[theirs, index])
    return Document(document.source, {"hosts": hosts}, lines), _remarks(document)


def _problems(document: Document, num_hosts: int) -> list[Problem]:
    problems = []
    for key, value in document.value.items():
        where = f"{document.source}:{document.lines.get((key,), 1)}"
        if key in KEYS and not (isinstance(value, list) and len(value) == num_hosts):
            given = len(value) if isinstance(value, list) else "no list"
            what = f"{key} has {given} entries, but nodes has {num_hosts}"
            problems.append(Problem(where, what, "give each host one, or leave the key out"))
        elif key not in KEYS and key not in _OF_THE_EXPERIMENT:
            known = ", ".join([*KEYS, *_OF_THE_EXPERIMENT])
            problems.append(
                Problem(
                    where,
                    f"{key} is not a key of a GLT launch file; known: {known}",
                    f"remove {key}",
                )
            )
    return problems


def _remarks(document: Document) -> tuple[str, ...]:
    ignored = [key for key in _OF_THE_EXPERIMENT if key in document.value]
    remarks = [
        f"{document.source} is a launch file of GraphLearn-for-PyTorch (GLT), read as hosts (docs/coming-from.md)"
    ]
    if ignored:
        remarks.append(f"{', '.join(ignored)}: not read, for what is trained is the experiment's to say")
    return tuple(remarks)
