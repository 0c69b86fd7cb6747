"""A file system that fails or is slow, for one process and its children: a library that is preloaded, compiled when it
is first asked for. `failing_disk(…)` gives the environment for it.

It stands in for calls of the C library, by operation and path, so it needs no rights and no mount. What does not go
through that library (a page of a mapped file that cannot be read, which is a SIGBUS) is out of its reach.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import pytest

OPERATIONS: Final = (
    *("open", "open_to_read", "read", "write", "fsync", "truncate"),
    *("rename", "stat", "unlink", "mkdir", "list"),
)
"""What can fail. `open` is of any mode, `unlink` of files and folders."""
FOR_EVER: Final = 2**31 - 1

SOURCE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* How many calls matched so far, in all processes together. */
static long count_call(void) {
    static unsigned *shared;
    if (!shared) {
        int file = NEXT(open64)(getenv("FAULT_COUNT"), O_RDWR);
        void *page = mmap(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        NEXT(close)(file);
        if (page == MAP_FAILED) abort();
        shared = page;
    }
    return __atomic_fetch_add(shared, 1, __ATOMIC_SEQ_CST);
}

static int fails(const char *operation, const char *path) {
    const char *part = getenv("FAULT_PATH"), *operations = getenv("FAULT_OPERATIONS");
    if (!part || !operations || !path || !strstr(path, part)) return 0;
    char wanted[32];
    snprintf(wanted, sizeof wanted, ",%s,", operation);
    if (!strstr(operations, wanted)) return 0;
    int before = errno;
    long nth = count_call() - number("FAULT_AFTER", 0);
    errno = before;
    if (nth < 0 || nth >= number("FAULT_TIMES", 1)) return 0;
    if (getenv("FAULT_DELAY_MS")) { usleep(1000 * number("FAULT_DELAY_MS", 0)); return 0; }
    errno = number("FAULT_ERROR", EIO);
    return 1;
}

static int fails_at(const char *operation, int folder, const char *path) {
    char full[8192];
    if (!getenv("FAULT_PATH") || !path) return 0;
    if (path[0] == '/' || folder == AT_FDCWD) return fails(operation, path);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, full, 4096);
    if (length < 0) return 0;
    snprintf(full + length, sizeof full - length, "%s%s", path[0] ? "/" : "", path);
    return fails(operation, full);
}

static int fails_fd(const char *operation, int file) { return fails_at(operation, file, ""); }

static int fails_open(int folder, const char *path, int flags) {
    if (fails_at("open", folder, path)) return 1;
    return (flags & O_ACCMODE) == O_RDONLY && fails_at("open_to_read", folder, path);
}

#define MODE va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest)
#define OPEN(name) int name(const char *path, int flags, ...) { MODE; \
    return fails_open(AT_FDCWD, path, flags) ? -1 : NEXT(name)(path, flags, mode); }
OPEN(open) OPEN(open64)
#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { MODE; \
    return fails_open(folder, path, flags) ? -1 : NEXT(name)(folder, path, flags, mode); }
OPENAT(openat) OPENAT(openat64)

ssize_t read(int file, void *to, size_t size) { return fails_fd("read", file) ? -1 : NEXT(read)(file, to, size); }
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
    return fails_fd("read", file) ? -1 : NEXT(pread64)(file, to, size, at); }
/* A write that fails may have written a part. */
ssize_t write(int file, const void *from, size_t size) {
    if (!fails_fd("write", file)) return NEXT(write)(file, from, size);
    int error = errno;
    if (size > 1) NEXT(write)(file, from, size / 2);
    errno = error;
    return -1;
}
ssize_t writev(int file, const struct iovec *from, int count) {
    return fails_fd("write", file) ? -1 : NEXT(writev)(file, from, count); }
int fsync(int file) { return fails_fd("fsync", file) ? -1 : NEXT(fsync)(file); }
int ftruncate64(int file, off64_t size) { return fails_fd("truncate", file) ? -1 : NEXT(ftruncate64)(file, size); }
int rename(const char *from, const char *to) {
    return fails("rename", from) || fails("rename", to) ? -1 : NEXT(rename)(from, to); }
int stat64(const char *path, struct stat64 *to) { return fails("stat", path) ? -1 : NEXT(stat64)(path, to); }
int lstat64(const char *path, struct stat64 *to) { return fails("stat", path) ? -1 : NEXT(lstat64)(path, to); }
int fstat64(int file, struct stat64 *to) { return fails_fd("stat", file) ? -1 : NEXT(fstat64)(file, to); }
int fstatat64(int folder, const char *path, struct stat64 *to, int flags) {
    return fails_at("stat", folder, path) ? -1 : NEXT(fstatat64)(folder, path, to, flags); }
int unlink(const char *path) { return fails("unlink", path) ? -1 : NEXT(unlink)(path); }
int unlinkat(int folder, const char *path, int flags) {
    return fails_at("unlink", folder, path) ? -1 : NEXT(unlinkat)(folder, path, flags); }
int rmdir(const char *path) { return fails("unlink", path) ? -1 : NEXT(rmdir)(path); }
int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : NEXT(mkdir)(path, mode); }
DIR *opendir(const char *path) { return fails("list", path) ? NULL : NEXT(opendir)(path); }
DIR *fdopendir(int folder) { return fails_fd("list", folder) ? NULL : NEXT(fdopendir)(folder); }

int flock(int file, int how) {
    const char *code = getenv("FAIL_FLOCK_WITH");
    if (code) { errno = atoi(code); return -1; }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, how);
}
"""


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory) -> Callable[..., dict[str, str]]:
    """`failing_disk(reads_of="checkpoints/step_", error=errno.EIO)`: no such file can be opened to be read.
    `failing_disk(["fsync"], "metrics.csv", after=3, times=2)`: the fourth and the fifth fail, of all processes
    together. `failing_disk(["stat"], "logs/", delay_ms=200)`: slow. `failing_disk(flock=errno.ENOSYS)`.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder: Path = tmp_path_factory.mktemp("failing_disk")
    (folder / "disk.c").write_text(SOURCE)
    library = folder / "disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "disk.c", "-ldl"], check=True)
    counts = iter(range(10**9))

    def environ(
        operations: Collection[str] = (),
        of: str = "",
        *,
        reads_of: str | None = None,
        error: int = errno.EIO,
        after: int = 0,
        times: int = FOR_EVER,
        delay_ms: int | None = None,
        flock: int | None = None,
    ) -> dict[str, str]:
        found = {**os.environ, "LD_PRELOAD": str(library)}
        if reads_of is not None:
            operations, of = ("open_to_read",), reads_of
        assert set(operations) <= set(OPERATIONS)
        if operations:
            count = folder / f"count_{next(counts)}"
            count.write_bytes(bytes(4))
            found |= {"FAULT_OPERATIONS": f",{','.join(operations)},", "FAULT_PATH": of, "FAULT_COUNT": str(count)}
            found |= {"FAULT_ERROR": str(error), "FAULT_AFTER": str(after), "FAULT_TIMES": str(times)}
            found |= {} if delay_ms is None else {"FAULT_DELAY_MS": str(delay_ms)}
        return found if flock is None else {**found, "FAIL_FLOCK_WITH": str(flock)}

    return environ


def calls_met(environ: dict[str, str]) -> int:
    """How many calls the fault was about, those included that did not fail."""
    return int.from_bytes(Path(environ["FAULT_COUNT"]).read_bytes(), "little")
