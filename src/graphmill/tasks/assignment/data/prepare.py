"""Prepare a store under the dataset root from generators, files or prepared data, an instance at a time.

What was made stays when the process is killed or the disk is full, in a folder `.NAME.preparing` beside the store: the
same request goes on there, and ends with the same bytes as if it had never been interrupted.
"""

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.files import put_folder, remove_leftovers, write_json
from graphmill.graph.arrays import write_array
from graphmill.graph.header import is_prepared, seal, write_metadata
from graphmill.record.lock import OwnedError, hold
from graphmill.tasks.assignment.data.generate import GeneratedInstances
from graphmill.tasks.assignment.data.growing import GrowingArrays, is_whole, read_json, start_anew
from graphmill.tasks.assignment.data.instance import (
    NO_SEQUENCE,
    SPLITS,
    TO_BE_DRAWN,
    Instance,
    RecordError,
    drawn_splits,
    kept_as,
)
from graphmill.tasks.assignment.data.sources import InstanceSource, Several, in_order, sources_in
from graphmill.tasks.assignment.data.store import OF_INSTANCES, AssignmentMetadata, AssignmentStore
from graphmill.tasks.assignment.page.data import GENERATED, KIND_NAME, AssignmentPrepareOptions
from graphmill.tasks.stores import Preparation, store_path

_log = logging.getLogger(__name__)

_FORMAT: Final = AssignmentMetadata.model_fields["format_version"].default
_OF_GENERATED: Final = ("sizes", "families", "instances", "instances_map", "frames", "seed", "noise_std", "noise_prob")
_OF_FILES: Final = ("duals", "matrix_costs")
_TELL_EVERY_S: Final = 10.0


def prepare_requested(preparation: Preparation) -> AssignmentStore:
    """Build the store that is asked for, whole or not at all; an existing one is kept, unless `force`."""
    options = preparation.options
    assert isinstance(options, AssignmentPrepareOptions)
    stored = preparation.save_as or preparation.name
    path = store_path(stored, preparation.root)
    is_generated = preparation.name == GENERATED
    _refuse_misfits(preparation, options, is_generated=is_generated)
    if path.exists() and not preparation.force:
        return _existing(preparation, path, _generator(GeneratedInstances(options), options) if is_generated else None)
    if is_generated:
        source: InstanceSource = GeneratedInstances(options)
        origin = f"generated, seed {options.seed or 0}"
    else:
        paths = [each for each in (preparation.from_path, *preparation.more_paths) if each is not None]
        source = Several([each for path in paths for each in sources_in(path.expanduser(), options)])
        origin = f"assignment problems of {', '.join(path.name for path in paths)}"
    with _write_errors(path):
        return _prepared(source, path, _Request(stored, origin, options, preparation.force))


@dataclass(frozen=True, slots=True)
class _Request:
    """What a store is to be, besides its source."""

    name: str
    origin: str
    options: AssignmentPrepareOptions
    force: bool

    def facts(self, source: InstanceSource) -> Mapping[str, Any]:
        """Facts of a request that the store's bytes depend on."""
        bytes_of = ("dtype", "split_seed", "duals", "duplicates", "matrix_costs")
        options = {name: getattr(self.options, name) for name in bytes_of}
        if isinstance(source, GeneratedInstances):
            options |= source.identity
        return {"format": _FORMAT, "options": options, "source": source.identity, "instances": len(source)}


def _refuse_misfits(preparation: Preparation, options: AssignmentPrepareOptions, *, is_generated: bool) -> None:
    given, source = options.model_fields_set, preparation.from_path
    if is_generated and source is not None:
        raise UserError(f"{GENERATED} is generated and reads nothing from {source}", fix="leave --from out")
    if not is_generated and source is None:
        raise UserError(
            f"{preparation.name} needs --from",
            fix="give .h5, .mtx or OR-Library's files, a folder of them, or prepared data",
        )
    misfits = sorted(given & set(_OF_FILES if is_generated else _OF_GENERATED))
    if misfits:
        what = "is generated" if is_generated else "is not generated"
        raise UserError(f"{preparation.name} {what} and takes no {', '.join(misfits)}", fix="leave them out")


def _existing(preparation: Preparation, path: Path, generator: Mapping[str, Any] | None) -> AssignmentStore:
    store = AssignmentStore.open(path)
    same = generator is not None and store.metadata.generator == generator
    if preparation.from_path is not None or (preparation.options.model_fields_set - {"workers"} and not same):
        raise UserError(f"{path} holds a prepared dataset", fix="rebuild it with --force, or choose another name")
    if not (_work_folder(path) / "journal.json").exists():  # else another preparation may go on there
        shutil.rmtree(_work_folder(path), ignore_errors=True)
    _log.info(f"{store.metadata.name} is prepared already: {path}")
    return store


def _generator(source: GeneratedInstances, options: AssignmentPrepareOptions) -> Mapping[str, Any]:
    """All that a generated store depends on."""
    return {**source.identity, "split_seed": options.split_seed, "duplicates": options.duplicates}


def _work_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.preparing")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        done = read_json(_work_folder(path) / "journal.json") or {}
        kept = f"; {done['written']:,} instances are made and kept" if done.get("written") else ""
        raise UserError(
            f"{path}: the prepared data cannot be written: {error.strerror or error}{kept}",
            fix="free some space and give the same command again: it goes on where it stopped; or choose another place "
            "with --dataset-root",
        ) from error


def _prepared(source: InstanceSource, path: Path, request: _Request) -> AssignmentStore:
    if path.is_file():
        raise UserError(
            f"{path} is a file, and prepared data are a folder",
            fix="move it away, or give another --dataset-root or name",
        )
    work = _work_folder(path)
    work.mkdir(parents=True, exist_ok=True)
    try:
        with hold(work):
            _go_on_or_begin(work, request, request.facts(source))
            if not is_prepared(work / "arrays"):
                _make(source, work, request)
            remove_leftovers(path)
            put_folder(work / "arrays", path)
            (work / "journal.json").unlink(missing_ok=True)
    except OwnedError as error:
        owner = f" by {error.owner.describe()}" if error.owner else ""
        raise UserError(
            f"{path} is being prepared{owner}", fix="wait for it or stop it, or give another name with --as"
        ) from None
    shutil.rmtree(work, ignore_errors=True)
    return AssignmentStore.open(path)


def _go_on_or_begin(work: Path, request: _Request, facts: Mapping[str, Any]) -> None:
    """Leave in `work` what an interrupted preparation of the same made, or nothing."""
    earlier, done = read_json(work / "asked.json"), read_json(work / "journal.json") or {"taken": 0}
    words = f"{done['taken']:,} of {earlier['instances']:,} instances" if earlier else ""
    whole = is_prepared(work / "arrays") or is_whole(work, request.options.dtype)
    if earlier == facts and whole:
        _log.info(f"going on with an interrupted preparation: {words} are done")
        return
    if earlier is not None and done["taken"]:
        if earlier != facts and earlier["options"] != facts["options"] and not request.force:
            raise UserError(
                f"{request.name}: a preparation with other options was interrupted, when {words} were done",
                fix="give the options that it had to go on with it, or --force to begin anew",
            )
        why = "other options" if earlier["options"] != facts["options"] else "files that have changed since"
        _log.warning(f"begun anew: {words} were made of {why if earlier != facts else 'what is not whole any more'}")
    start_anew(work)
    write_json(work / "asked.json", facts)


def _make(source: InstanceSource, work: Path, request: _Request) -> None:
    """Add all instances that are not there yet, and what makes a store of them."""
    options = request.options

    def make(number: int) -> Instance:
        return kept_as(source.instance(number), options.dtype)

    with GrowingArrays(work, options.dtype) as growing:
        numbers = range(growing.journal.taken, len(source))
        started = told = time.monotonic()
        with closing(in_order(make, numbers, options.workers)) as made:
            for number, (found, error) in zip(numbers, made, strict=True):
                if found is not None:
                    growing.add(found, drops_duplicates=options.duplicates == "drop")
                else:
                    _leave_out(growing, error, source.name_of(number), options)
                if time.monotonic() - told >= _TELL_EVERY_S:
                    told = time.monotonic()
                    _tell(number + 1, numbers.start, len(source), growing.num_bytes, told - started)
        _finish(growing, request, source)


def _leave_out(growing: GrowingArrays, error: Exception | None, name: str, options: AssignmentPrepareOptions) -> None:
    if isinstance(error, MemoryError):
        raise UserError(
            f"{name} needs more memory than there is", fix="make fewer at once: -o workers=1; or leave such sizes out"
        ) from error
    if not isinstance(error, RecordError):
        raise error or AssertionError("neither an instance nor an error")
    if options.damaged == "refuse":
        raise UserError(
            f"{name}: {error}",
            fix="correct the record and give the command again, or leave such records out: -o damaged=skip",
        )
    _log.warning(f"left out: {name}: {error}")
    growing.leave_out(name, str(error))


def _tell(done: int, begin: int, total: int, num_bytes: int, seconds: float) -> None:
    left = seconds / (done - begin) * (total - done)
    _log.info(f"{done:,} of {total:,} instances, {num_bytes / 2**20:,.0f} MiB; at this pace {left:,.0f} s more")


def _finish(growing: GrowingArrays, request: _Request, source: InstanceSource) -> None:
    """The arrays of what is known of each instance, the splits, and the metadata."""
    if not growing.journal.written:
        raise UserError(f"{request.name} has no instance that could be kept", fix="see the messages above for why")
    rows, records = growing.finished()
    num_rows, num_cols = rows["rows"].astype(np.int64), rows["cols"].astype(np.int64)
    splits, note = _splits(rows, request.options)
    arrays: dict[str, NDArray[Any]] = {
        "offsets": _ends(num_rows * num_cols),
        "u_offsets": _ends(num_rows),
        "v_offsets": _ends(num_cols),
        "tag_offsets": _ends(rows["tag_bytes"]),
        "shapes": np.stack([rows["rows"], rows["cols"]], axis=1),
        "fingerprints": rows["fingerprint"],
        **{name: rows[column].astype(OF_INSTANCES[name]) for name, column in _COLUMNS.items()},
        **{name: np.flatnonzero(splits == code).astype(np.int64) for code, name in enumerate(SPLITS)},
    }
    made = {name: write_array(growing.arrays / f"{name}.npy", array) for name, array in arrays.items()}
    journal = growing.journal
    metadata = AssignmentMetadata(
        kind=KIND_NAME,
        name=request.name,
        synthetic=isinstance(source, GeneratedInstances),
        arrays={**records, **made},
        source=request.origin,
        generator=_generator(source, request.options) if isinstance(source, GeneratedInstances) else None,
        dtype=request.options.dtype,
        num_instances=len(rows),
        num_costs=int((num_rows * num_cols).sum()),
        num_rows=int(num_rows.sum()),
        num_cols=int(num_cols.sum()),
        max_rows=int(num_rows.max()),
        max_cols=int(num_cols.max()),
        num_sizes=len(np.unique(rows["size"])),
        num_families=len(journal.families),
        family_names=tuple(journal.families),
        num_sequences=int(rows["sequence"].max()) + 1,
        num_tag_bytes=int(rows["tag_bytes"].sum()),
        num_train=int((splits == 0).sum()),
        num_val=int((splits == 1).sum()),
        num_test=int((splits == 2).sum()),
        split=note,
        num_duplicates=journal.num_duplicates,
        num_damaged=journal.num_damaged,
        damaged=tuple(journal.damaged),
        num_solved_again=journal.num_solved_again,
    )
    write_metadata(growing.arrays, seal(metadata))
    _tell_notes(metadata)


_COLUMNS: Final[Mapping[str, str]] = {
    **{"optima": "optimum", "families": "family", "sizes": "size", "noise_std": "noise_std"},
    **{"sequences": "sequence", "frames": "frame"},
}


def _tell_notes(metadata: AssignmentMetadata) -> None:
    if metadata.num_duplicates:
        _log.info(f"{metadata.num_duplicates:,} duplicates left out: instances with the costs of an earlier one")
    if metadata.num_damaged:
        _log.warning(f"{metadata.num_damaged:,} damaged records left out")
    if metadata.num_solved_again:
        _log.info(
            f"{metadata.num_solved_again:,} instances solved again: their duals were not exact to the last digits"
        )


def _splits(rows: NDArray[Any], options: AssignmentPrepareOptions) -> tuple[NDArray[np.int8], str]:
    """The split of each instance, and who drew it."""
    given = rows["split"].astype(np.int8)
    to_draw = np.ones(len(rows), bool) if options.split_seed is not None else given == TO_BE_DRAWN
    if not to_draw.any():
        return given, "as given"
    seed = options.split_seed or 0
    strata = [(int(row["size"]), int(row["family"])) for row in rows[to_draw]]
    alone = [-1 - number for number in range(len(strata))]
    sequences = rows["sequence"][to_draw].tolist()
    units = [own if sequence == NO_SEQUENCE else sequence for own, sequence in zip(alone, sequences, strict=True)]
    splits = given.copy()
    splits[to_draw] = drawn_splits(strata, units, seed)
    note = f"drawn, 70/15/15 of each size and family, seed {seed}"
    return splits, note if to_draw.all() else f"as given, and {int(to_draw.sum()):,} {note}"


def _ends(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
