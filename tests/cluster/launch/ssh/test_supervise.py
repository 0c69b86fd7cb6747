"""What the launcher shows of the ranks' output, and what it holds back."""

import pytest

from graphmill.cluster.launch.ssh.supervise import PrintingThread

TORCH = "[rank1]:[W1121 15:03:06.457401044 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=10)"
RESOLVER = "[W1121 15:02:57.759170409 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved."


@pytest.mark.parametrize("echo", ["Traceback (most recent call last):", "error: lost", TORCH, TORCH[8:]])
def test_what_begins_like_an_error_is_held_back_with_all_that_follows(capsys, echo):
    shown = PrintingThread({1: "host2:1 | "})
    for text in (RESOLVER, echo, "frame #0: c10::Error::Error"):
        shown.line(1, text)
    shown.close()
    assert capsys.readouterr().out == f"host2:1 | {RESOLVER}\n"


def test_what_was_held_back_is_shown_where_nothing_failed(capsys):
    shown = PrintingThread({1: "host2:1 | "})
    shown.line(1, TORCH)
    shown.release()
    shown.close()
    assert capsys.readouterr().out == f"host2:1 | {TORCH}\n"
