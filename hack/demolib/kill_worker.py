"""Runs inside a worker pod (`kubectl exec -i POD -- python -`): ends the worker's process with SIGKILL.

The demo's pods share one process namespace among their containers, so the worker is not its first process, which no
signal from inside could end.
"""

import os
import signal
import sys
from pathlib import Path

for process in Path("/proc").glob("[0-9]*"):
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        continue
    if b"perdure.worker" in arguments:
        os.kill(int(process.name), signal.SIGKILL)
        print(f"process {process.name}: {b' '.join(arguments).decode().strip()}")
        sys.exit(0)
sys.exit("no worker process in this pod")
