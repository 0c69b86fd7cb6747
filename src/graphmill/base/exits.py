"""Exit statuses of every command, and of every rank. What they say of a run: `graphmill.record.endings`."""

DONE = 0
ANSWER_IS_NO = 1  # it ran, and the answer is no
BAD_REQUEST = 2
PORT_BUSY = 69  # EX_UNAVAILABLE of sysexits.h: the rendezvous port is taken, try another one
IO_ERROR = 71  # EX_OSERR: the file system did not answer; resume me
LOST_A_RANK = 74  # EX_IOERR: a rank or a host became unresponsive; resume me
OUT_OF_TIME = 75  # EX_TEMPFAIL: stopped after a checkpoint, resume me
INTERRUPTED = 130  # 128 + SIGINT: a second Ctrl-C
