"""Messages whose length nobody was told arrive whole, whatever their lengths were before. Real ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.sample.distributed.messages import packed, unpacked


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_sections_come_out_of_a_message_as_they_went_in(sections):
    message = packed([np.frombuffer(section, np.uint8) for section in sections])
    assert len(message) % 8 == 0
    assert [its.tobytes() for its in unpacked(message, len(sections))] == sections


@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_messages_arrive_whole(told_by_ranks, ranks):
    for rank, cell in enumerate(told_by_ranks("messages.py", ranks, 1)):
        assert cell["wrong"] == []
        assert cell["wrong_behind_rows"] == [[], [], []], (
            "rows of any width, in one collective with messages of two arrays"
        )
        assert cell["share_of_padding"] < 0.7, "one message may be sent with the room of a longer one, and no more"
        if ranks > 1:
            assert cell["swaps_of_even"] == 1, "messages that are about as long as those before take one collective"
            assert cell["swaps_of_sudden"] == (1 if rank == 2 else 2), "what does not fit follows, between those two"
