"""How `unchanged.py` reads what a run left: weights by tensor, and measures by name."""

import csv
import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any

Tensors = dict[str, dict[str, Any]]  # name: dtype, shape, sha256 of its bytes

WEIGHTS = "model.safetensors"  # resume state stands in rank_*.safetensors
_STEP = re.compile(r"step_(\d+)")

# Wall time, throughput, memory, interface, host, and what an interruption decides: different in every run.
NOT_COMPARED = re.compile(
    r"run_id|attempt|wall_s|.*_per_s"
    r"|(sample|gather|wait|compute|sync|eval|train|epoch|step|fetch|save)_s"
    r"|interface_.*|peak_.*|[cg]pu_util.*|host(name)?|message|exit_code"
)


def read_run(folder: Path) -> dict[str, Any]:
    """Final and best weights, rows of metrics and the outcome of a finished run. ValueError: it did not finish."""
    outcome = json.loads((folder / "outcome.json").read_text())
    if outcome.get("status") != "done":
        raise ValueError(f"outcome.json says {outcome.get('status')!r}: {outcome.get('message')}")
    final, best = _weight_files(folder, outcome)
    return {
        "final": read_tensors(final),
        "best": read_tensors(best),
        "final_file": str(final.relative_to(folder)),
        "best_file": str(best.relative_to(folder)),
        "rows": _rows(folder),
        "outcome": outcome,
    }


def _weight_files(folder: Path, outcome: dict[str, Any]) -> tuple[Path, Path]:
    found = [path for path in folder.rglob("*.safetensors") if path.name == WEIGHTS and _is_visible(path, folder)]
    steps = {int(match[1]): path for path in found if (match := _STEP.search(str(path.relative_to(folder))))}
    if not steps:
        raise ValueError(f"no weights under {folder}: a new layout? WEIGHTS in {Path(__file__).name} names the file")
    step = (outcome.get("best") or {}).get("step")
    best = steps.get(step or 0)
    if best is None:
        raise ValueError(f"no weights of the best step, {step}; there are {sorted(steps)}")
    return steps[max(steps)], best


def _is_visible(path: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def saved_steps(folder: Path) -> int:
    """Steps in the newest checkpoint that is whole; 0: there is none."""
    names = [path.name for path in folder.glob("checkpoints/step_*") if not path.name.startswith(".")]
    return max((int(match[1]) for name in names if (match := _STEP.fullmatch(name))), default=0)


def read_tensors(path: Path) -> Tensors:
    """What a safetensors file holds: 8 bytes of length, a JSON header, then the tensors' bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: {
            "dtype": entry["dtype"],
            "shape": entry["shape"],
            "sha256": hashlib.sha256(content[8 + length :][slice(*entry["data_offsets"])]).hexdigest(),
        }
        for name, entry in sorted(header.items())
    }


def read_store(folder: Path) -> Tensors:
    """The arrays of a prepared dataset."""
    return {
        str(path.relative_to(folder).with_suffix("")): {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(folder.rglob("*.npy"))
    }


def _rows(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Every table in the run folder itself: metrics.csv, and evaluations where they stand apart."""
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def measures(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is compared of a run: name → where (epoch, "test", "best") → value."""
    found: dict[str, dict[str, Any]] = {}
    for rows in run["rows"].values():
        for row in rows:
            if "measure" in row and "value" in row:  # long form: epoch, set, measure, value
                prefix = "" if row["set"] == "train" else f"{row['set']}_"
                _put(found, f"{prefix}{row['measure']}", f"epoch {row['epoch']}", row["value"])
                continue
            for name, value in row.items():
                _put(found, name, f"epoch {row['epoch']}", value)
    outcome = dict(run["outcome"])
    best = dict(outcome.pop("best") or {})
    for where, values in (("test", outcome.pop("test", None)), ("best", {**best.pop("values", {}), **best})):
        for name, value in (values or {}).items():
            _put(found, f"{where}_{name}", "outcome", value)
    for name in ("epochs", "steps_per_rank"):
        _put(found, name, "outcome", outcome.get(name))
    return found


def _put(found: dict[str, dict[str, Any]], name: str, where: str, value: Any) -> None:
    if NOT_COMPARED.fullmatch(name) or value is None or value == "":
        return
    found.setdefault(name, {})[where] = _number(value)


def _number(value: Any) -> Any:
    """A float where it is one; text and booleans as lower-case text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower()
    try:
        return float(value)
    except ValueError:
        return value.lower() if isinstance(value, str) else value
