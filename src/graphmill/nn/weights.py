"""The weights of a model as portable tensors: written to a file with their origin, read back, put into a model."""

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.base.retries import retried
from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import ContentDigest, Origin, Report, WeightsFile, Which, metadata_of

_DTYPES: Final = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.bool: "BOOL",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading weights into a model did; names in ascending order."""

    taken: tuple[str, ...]
    not_taken: tuple[str, ...]  # in the weights, but excluded, or not in the model
    not_filled: tuple[str, ...]  # in the model, and as it was before
    otherwise: tuple[str, ...] = ()  # options of the model that the weights were trained with otherwise, in words


@dataclass(frozen=True, slots=True)
class Weights:
    """Named tensors, and where they come from."""

    tensors: Mapping[str, Tensor]
    origin: Origin | None  # None: not known
    described: str  # for messages: run, step, file

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], origin: Origin) -> "Weights":
        """The weights of a model in training."""
        return cls(tensors, origin, str(origin))

    @classmethod
    def read(cls, path: Path) -> "Weights":
        """The weights in a file; `UserError` if it is damaged."""
        file = WeightsFile.read(path)
        try:
            tensors = retried(path, read_tensors)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} is damaged: {error}", fix="restore the file, or name another one") from None
        weights = cls(tensors, file.origin, file.described)
        if file.recorded_checksum not in (None, weights.checksum()):
            file.checked()  # raises, and says both checksums
        return weights

    @classmethod
    def of_run(cls, folder: RunFolder, which: Which, report: Report) -> "Weights":
        """The best, or the last, weights of a run. `report(checkpoint, problem)`: called for damaged ones."""
        file = weights_of(folder, which, report)
        return replace(cls.read(file.path), origin=file.origin, described=file.described)

    def write(self, path: Path) -> None:
        """Write the file, not durably: the caller names it once it is. The same weights make the same bytes."""
        assert self.origin is not None
        own = replace(self, tensors={name: tensor.detach().cpu() for name, tensor in self.tensors.items()})
        write_tensors(own.tensors, path, metadata_of(self.origin, own.checksum()))

    def checksum(self) -> str:
        """xxh3 of names, dtypes, shapes and values: `WeightsFile.compute_checksum` of the file."""
        digest = ContentDigest()
        for name, tensor in sorted(self.tensors.items()):
            values = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            digest.add(name, _DTYPES[tensor.dtype], tensor.shape, values.numpy().data)
        return digest.hexdigest()

    def load_into(
        self, model: nn.Module, *, include: Iterable[str] = (), exclude: Iterable[str] = (), name: str = ""
    ) -> Loaded:
        """Copy the values into the tensors of `model`, in place, by name.

        `include`, `exclude`: patterns of tensor names (`layers.0.*`); no `include` means all. `name`: of the model, for
        messages. Tensors of the model that the weights lack stay as they are, and are listed in the result.

        Raises:
            UserError: a tensor has another shape or dtype here and there; a pattern matches nothing; nothing is taken.
        """
        wanted = self._matching(tuple(include), tuple(exclude))
        own = model.state_dict()
        taken = sorted(wanted & own.keys())
        model_name = name or type(model).__name__
        self._refuse_clashes(own, taken, model_name)
        if not taken:
            raise UserError(
                f"{self.described} holds no tensor of {model_name}: it has {_shown(self.tensors)},"
                f" the model has {_shown(own)}",
                fix="name weights of the same kind of model, or change include and exclude",
            )
        with torch.no_grad():
            for key in taken:
                own[key].copy_(self.tensors[key])
        return Loaded(
            tuple(taken), tuple(sorted(self.tensors.keys() - set(taken))), tuple(sorted(own.keys() - set(taken)))
        )

    def load_all_into(self, model: nn.Module, *, name: str = "") -> None:
        """Load all tensors into a model; `UserError` unless the weights and the model have exactly the same tensors."""
        loaded = self.load_into(model, name=name)
        if loaded.not_taken or loaded.not_filled:
            raise UserError(
                f"{self.described} does not fit {name or type(model).__name__}: only the file has"
                f" {_shown(loaded.not_taken)}, only the model has {_shown(loaded.not_filled)}",
                fix="name weights of this model",
            )

    def chosen(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> "Weights":
        """Keep only the tensors whose names match; patterns as in `load_into`."""
        wanted = self._matching(tuple(include), tuple(exclude))
        return replace(self, tensors={name: tensor for name, tensor in self.tensors.items() if name in wanted})

    def _matching(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> set[str]:
        for pattern in (*include, *exclude):
            if not any(fnmatchcase(key, pattern) for key in self.tensors):
                raise UserError(
                    f"{pattern!r} matches no tensor of {self.described}; {did_you_mean(pattern, list(self.tensors))}",
                    fix="change include or exclude",
                )
        chosen = {key for key in self.tensors if not include or any(fnmatchcase(key, each) for each in include)}
        return {key for key in chosen if not any(fnmatchcase(key, each) for each in exclude)}

    def _refuse_clashes(self, model_state: Mapping[str, Tensor], taken: Iterable[str], model_name: str) -> None:
        pairs = {key: (self.tensors[key], model_state[key]) for key in taken}
        clashes = {
            key: f"{key} is {_form(there)} there and {_form(here)} here"
            for key, (there, here) in pairs.items()
            if here.shape != there.shape or here.dtype != there.dtype
        }
        if clashes:
            raise UserError(
                f"{self.described} does not fit {model_name}: {_shown(clashes.values(), '; ')}",
                fix="build the model with the same sizes, or leave these tensors out: init_from.exclude="
                + json.dumps(list(clashes)),
            )


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; its mode obeys the umask, and a full disk is an `OSError`, as of every other file."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)  # safetensors renames a temporary file of mode 0600 onto it
    try:
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:
        failed = os_error(error, path)
        if failed is None:
            raise
        raise failed from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. An I/O error is an `OSError`, as of every other file."""
    try:
        return load_file(path)
    except SafetensorError as error:
        failed = os_error(error, path)
        if failed is None:
            raise
        raise failed from None


def os_error(error: SafetensorError, path: Path) -> OSError | None:
    """The operating system's error behind a safetensors error, if there is one."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number.group(1)), os.strerror(int(number.group(1))), str(path)) if number else None


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {_DTYPES.get(tensor.dtype, str(tensor.dtype))}"


def _shown(names: Iterable[str], separator: str = ", ") -> str:
    known = sorted(names)
    return separator.join(known[:6]) + (f" and {len(known) - 6} more" if len(known) > 6 else "") if known else "nothing"
