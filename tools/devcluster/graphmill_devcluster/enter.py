"""Go into a running cluster: its namespaces, with all its capabilities, then the command. Run as a file, on its own.

util-linux's nsenter does the same but for one thing: without root, it loses the capabilities that joining the cluster's
user namespace gives, before the command can use them.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION = 0x20080522
_PR_CAP_AMBIENT, _RAISE = 47, 2
_NAMESPACES = ("user", "net", "mnt", "uts", "ipc", "pid")


def main(process: str, folder: str, *command: str) -> int:
    """Become a child of this process inside, in `folder`; returns the command's exit status."""
    join([Path("/proc", process, "ns", name) for name in _NAMESPACES])
    keep_capabilities()
    child = os.fork()  # only children are in the process namespace
    if child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code if code >= 0 else 128 - code
    os.chdir(folder)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and its children would
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]} cannot be started: {error.strerror}\n")
        os._exit(127)


def join(paths: "list[Path]") -> None:
    """setns(2) for each of them that we are not in: one's own user namespace cannot be joined again."""
    others = [path for path in paths if path.stat().st_ino != Path("/proc/self/ns", path.name).stat().st_ino]
    for fd in [os.open(path, os.O_RDONLY) for path in others]:
        _must(_LIBC.setns(fd, 0), "setns")
        os.close(fd)


def keep_capabilities() -> None:
    """Make what this process may do inheritable and ambient, so that the next program may do it, too."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, 32 capabilities each
    _must(_LIBC.capget(header, sets), "capget")
    sets[2], sets[5] = sets[1], sets[4]
    _must(_LIBC.capset(header, sets), "capset")
    permitted = sets[1] | sets[4] << 32
    for number in range(64):
        if permitted >> number & 1:
            _LIBC.prctl(_PR_CAP_AMBIENT, _RAISE, number, 0, 0)


def _must(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
