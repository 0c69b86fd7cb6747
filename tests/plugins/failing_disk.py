"""A file system that fails, for one process and its children: a library that is preloaded, compiled when it is first
asked for. `failing_disk(…)` gives the environment for it.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *path, int flags) {
    const char *part = getenv("FAIL_READS_OF");
    return part && path && strstr(path, part) && (flags & O_ACCMODE) == O_RDONLY;
}

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        if (fails(path, flags)) { errno = atoi(getenv("FAIL_WITH")); return -1; }        \
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);          \
        return next(path, flags, mode);                                         \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                            \
    int name(int folder, const char *path, int flags, ...) {                    \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        if (fails(path, flags)) { errno = atoi(getenv("FAIL_WITH")); return -1; }        \
        int (*next)(int, const char *, int, ...) = dlsym(RTLD_NEXT, #name);     \
        return next(folder, path, flags, mode);                                 \
    }
OPENAT(openat)
OPENAT(openat64)

int flock(int file, int how) {
    const char *code = getenv("FAIL_FLOCK_WITH");
    if (code) { errno = atoi(code); return -1; }
    int (*next)(int, int) = dlsym(RTLD_NEXT, "flock");
    return next(file, how);
}
"""


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory) -> Callable[..., dict[str, str]]:
    """`failing_disk(reads_of="checkpoints/step_", error=errno.EIO)`, `failing_disk(flock=errno.ENOSYS)`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder: Path = tmp_path_factory.mktemp("failing_disk")
    (folder / "disk.c").write_text(SOURCE)
    library = folder / "disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "disk.c", "-ldl"], check=True)

    def environ(*, reads_of: str | None = None, error: int = 5, flock: int | None = None) -> dict[str, str]:
        found = {**os.environ, "LD_PRELOAD": str(library)}
        if reads_of is not None:
            found |= {"FAIL_READS_OF": reads_of, "FAIL_WITH": str(error)}
        return found if flock is None else {**found, "FAIL_FLOCK_WITH": str(flock)}

    return environ
