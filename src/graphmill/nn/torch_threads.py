"""The threads of torch's operators, which native work shares where they spin while they wait for more."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphmill import _native

_OPENMP: Final = re.compile(r"/lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")
_TOLD: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def share_torch_threads(environ: Mapping[str, str] = os.environ) -> bool:
    """Have native work of this thread done by torch's OpenMP threads, if these spin; returns whether they do it.

    OpenMP's threads spin for milliseconds unless the environment says otherwise, as a launcher of ours does. Threads of
    the native core would wait for their cores. torch must be imported.
    """
    if any(name in environ for name in _TOLD):
        return False
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    loaded = {line.split(maxsplit=5)[-1] for line in lines if _OPENMP.search(line)}
    # scikit-learn brings one of its own: torch's lies in torch's folder, or is the only one.
    of_torch = sorted(loaded, key=lambda path: ("/torch" not in path, path))
    return bool(of_torch) and _native.use_openmp(of_torch[0])
