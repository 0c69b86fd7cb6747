"""Real ranks that run a program of a test's, forked from one process that has imported what they need."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from waiting import HANG_S

from graphmill.runtime.fork_server import start_program


def told_by_ranks(
    program: Path,
    num_ranks: int,
    folder: Path,
    *words: object,
    environ: Mapping[str, str],
    imports: Sequence[str],
) -> list[dict]:
    """What each rank wrote into its file in `folder`; `program MEETING_FILE OUT_FOLDER WORDS…`, of one thread each."""
    shared = {**environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo"}
    shared["WORLD_SIZE"] = str(num_ranks)
    command = [str(program), *map(str, (folder / "meeting", folder, *words))]
    ranks = [
        start_program(command, {**shared, "RANK": str(rank)}, (2, 2), imports=imports) for rank in range(num_ranks)
    ]
    try:
        for rank in ranks:
            assert rank.ended.wait(HANG_S)
        assert [rank.code for rank in ranks] == [0] * num_ranks
    finally:
        for rank in ranks:
            rank.kill_session()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]
