"""`hack/demo [down]`: chooses between a cluster and `perdure dev`, tells the story, judges it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from localcluster.console import Failure, Impossible, duration
from testrun import venv

from demolib import install, local, show, story

DESCRIPTION = """Perdure on a real cluster: apply, run, kill the worker, go on, prove it. The cluster is the one of
KUBECONFIG, else kind where a container engine answers, else one of its own (needs root, and Go to build it once).
Exit code 0 only if everything promised was seen."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="hack/demo", description=DESCRIPTION)
    parser.add_argument("verb", nargs="?", choices=("up", "down"), default="up", help="down: take it all away")
    parser.add_argument("--local", action="store_true", help="without a cluster, as where none can be")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "down":
            install.remove(install.provider())
            return 0
        return _up(local_only=options.local)
    except Failure as failure:
        show.fail(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        return 130


def _up(*, local_only: bool) -> int:
    started = time.monotonic()
    show.heading("What is needed")
    python = venv.ensure()
    try:
        if local_only:
            raise Impossible("it was asked to do without")
        where = install.provider()
        installation = install.install(where)
    except Impossible as reason:
        problems = local.tell(python, str(reason))
    else:
        problems = story.tell(installation)
    for problem in problems:
        show.fail(problem)
    if not problems:
        show.heading(f"All of it was seen, in {duration(time.monotonic() - started)}")
    return 1 if problems else 0
