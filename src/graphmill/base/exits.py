"""Exit statuses of every command, and of every rank."""

DONE = 0
ANSWER_IS_NO = 1  # it ran, and the answer is no
BAD_REQUEST = 2
PORT_BUSY = 69  # EX_UNAVAILABLE of sysexits.h: the ranks could not meet there, try another port
LOST_A_RANK = 74  # EX_IOERR: a rank or a host stopped responding; resume me
OUT_OF_TIME = 75  # EX_TEMPFAIL: stopped on request after a checkpoint, resume me
