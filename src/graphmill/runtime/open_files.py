"""How many files a process may have open: the soft limit is there for programs that use select(), which we do not."""

import resource

UNLIMITED = resource.RLIM_INFINITY


def allow_open_files() -> int:
    """Raise this process's soft limit to the hard one. Returns that; `UNLIMITED` if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
