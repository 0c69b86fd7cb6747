"""Messages whose length nobody was told arrive whole, whatever their lengths were before. Real ranks."""

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("ranks", [1, 3])
def test_messages_arrive_whole(told_by_ranks, ranks):
    for rank, cell in enumerate(told_by_ranks("letters.py", ranks, 1)):
        assert cell["wrong"] == []
        assert cell["share_of_padding"] < 0.7, "one message may be sent with the room of a longer one, and no more"
        if ranks > 1:
            assert cell["swaps_of_even"] == 1, "messages that are about as long as those before take one collective"
            assert cell["swaps_of_sudden"] == (1 if rank == 2 else 2), "what does not fit follows, between those two"
