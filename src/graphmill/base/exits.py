"""Exit statuses of every command."""

DONE = 0
ANSWER_IS_NO = 1  # it ran, and the answer is no
BAD_REQUEST = 2
OUT_OF_TIME = 75  # EX_TEMPFAIL of sysexits.h: stopped on request after a checkpoint, resume me
