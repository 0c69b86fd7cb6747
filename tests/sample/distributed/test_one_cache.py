"""The ranks of a host hold their hot rows once. Real ranks, two on each of what they take for two hosts."""

import os

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.sample.distributed.held import opened_memory
from graphmill.sample.service.memory import SharedMemory


def test_a_memory_that_is_not_the_one_is_refused():
    """As where each rank has process ids of its own: in containers."""
    memory = SharedMemory.make()
    memory.room(16)[:] = 7
    content = np.full(16, 7, dtype=np.uint8).view(np.int64)
    assert opened_memory(np.array([os.getpid(), memory.fd, *content]), 0).bytes(16).tolist() == [7] * 16
    with pytest.raises(UserError, match="another process") as refused:
        opened_memory(np.array([os.getpid(), memory.fd, 0, 0]), 0)
    assert "partition.placement=per_rank" in refused.value.fix
    descriptor = memory.fd
    memory.close()
    with pytest.raises(UserError, match="No such file"):
        opened_memory(np.array([os.getpid(), descriptor, *content]), 0)


@pytest.mark.distributed
@pytest.mark.parametrize("ways", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_the_ranks_of_a_host_map_one_table(told_by_ranks, ways):
    """For dense and sparse rows, both topologies, both ways to hand out seeds and every static policy."""
    told = told_by_ranks("one_cache.py", 4, 2, 1, ways)
    assert [cells.pop("open") for cells in told] == [[]] * 4, "nothing but the mapping is left of a memory"
    assert len(told[0]) == 2 * (4 if ways == "all" else 2) * 4
    for words in told[0]:
        cells = [of_rank[words] for of_rank in told]
        assert not [cell["differences"] for cell in cells if cell["differences"]], words
        hosts = [cells[:2], cells[2:]]
        for one, other in hosts:
            assert len(one["memories"]) == 1, words
            assert one["memories"] == other["memories"], "the very same memory"
            assert one["rows"] == other["rows"] > 0
            assert one["of_all"] <= 0.05, "a ratio is that of the host"
            assert one["hits"] > 0 or other["hits"] > 0
        assert hosts[0][0]["memories"] != hosts[1][0]["memories"], words
