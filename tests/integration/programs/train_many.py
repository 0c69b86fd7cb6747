"""A rank that trains several runs, one after the other: python train_many.py MEETING_FILE FOLDER...

What a worker does, without the seconds that a process for each run would take to start. Exits with the first status
that is not 0.
"""

import gc
import os
import sys
from pathlib import Path

from torch.distributed import FileStore, PrefixStore

from graphmill.record.run_folder import RunFolder
from graphmill.runtime.rank import current_rank
from graphmill.train.worker import work

rank = current_rank(os.environ)
meeting = FileStore(sys.argv[1], rank.world_size) if rank.world_size > 1 else None
gc.freeze()  # the worker collects at its end: what was imported need not be looked through each time
code = 0
for number, folder in enumerate(sys.argv[2:]):
    store = PrefixStore(str(number), meeting) if meeting is not None else None
    code = work(RunFolder.open(Path(folder)), rank, resume=False, store=store)
    if code:
        break
sys.exit(code)
