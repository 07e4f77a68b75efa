"""`hack/test [TIER …] [-- PYTEST ARGUMENTS]`: set up, run the tiers in order, report.

With CI=true a tier that cannot run is a failure. Full logs and JUnit files are in .cache/test/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localcluster.console import Failure, Impossible, duration, run_with_progress, say

from testrun import LOGS, ROOT, lint, report, venv
from testrun.report import Result
from testrun.tiers import LINT, NAMES, TIERS, Tier

TAIL = 60
"""Lines of a failing tier's log that are shown: pytest's summary and the last traceback fit."""


def main(arguments: Sequence[str]) -> int:
    own, extra = _split(arguments)
    parser = argparse.ArgumentParser(prog="hack/test", description=__doc__)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"which to run: {', '.join(NAMES)}; all by default")
    wanted = parser.parse_args(own).tiers or list(NAMES)
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        parser.error(f"no such tier: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    in_ci = os.environ.get("CI") == "true"
    python = venv.ensure()
    LOGS.mkdir(parents=True, exist_ok=True)
    results = [lint.run(python) if LINT in wanted else report.not_asked(LINT)]
    results += [
        _run(tier, python, extra, in_ci=in_ci) if tier.name in wanted else report.not_asked(tier.name) for tier in TIERS
    ]
    print(*report.closing_lines(results), sep="\n", flush=True)
    failed = any(result.failed for result in results)
    return 1 if failed or not any(result.passed for result in results) else 0


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in arguments:
        return arguments, ()
    at = list(arguments).index("--")
    return arguments[:at], arguments[at + 1 :]


def _run(tier: Tier, python: Path, extra: Sequence[str], *, in_ci: bool) -> Result:
    started = time.monotonic()
    say(f"{tier.name}: {tier.what}")
    try:
        with tier.machine():
            return _pytest(tier, python, extra, started=started, in_ci=in_ci)
    except Impossible as reason:
        say(f"{tier.name}: cannot run here: {reason}")
        return report.unavailable(tier.name, str(reason), in_ci=in_ci)
    except Failure as failure:
        print(failure, flush=True)
        return Result(tier.name, failed=1, seconds=time.monotonic() - started, note="its set-up failed, see above")


def _pytest(tier: Tier, python: Path, extra: Sequence[str], *, started: float, in_ci: bool) -> Result:
    folders = [folder for folder in tier.folders if (ROOT / folder).is_dir()]
    junit, log_path = LOGS / f"{tier.name}.xml", LOGS / f"{tier.name}.log"
    junit.unlink(missing_ok=True)
    argv: list[str | Path] = [python, "-m", "pytest", *folders, "-v", f"--junitxml={junit}", *tier.arguments]
    if tier.processes > 1:
        argv += ["-n", str(tier.processes)]
    argv += extra
    exit_ok = True
    with log_path.open("w") as log:
        progress = _Progress(tier.name, log.write)
        try:
            run_with_progress(
                argv, tier.name, progress=progress, cwd=ROOT, env={**os.environ, "COLUMNS": "160", **tier.environment}
            )
        except Failure:
            exit_ok = False
    seconds = time.monotonic() - started
    result = report.read_junit(tier.name, junit, in_ci=in_ci, seconds=seconds, exit_ok=exit_ok)
    if not exit_ok:
        print(*log_path.read_text().splitlines()[-TAIL:], sep="\n", flush=True)
        say(f"{tier.name}: the whole log is {log_path.relative_to(ROOT)}")
    say(f"{tier.name}: {result.passed} passed, {result.failed} failed in {duration(seconds)}")
    return result


class _Progress:
    """Sees each line of pytest: keeps it in the log, counts, and shows a failing test at once."""

    def __init__(self, tier: str, write: Callable[[str], object]) -> None:
        self._tier = tier
        self._write = write
        self._passed = self._failed = 0

    def __call__(self, line: str) -> str:
        self._write(line + "\n")
        words = line.split()
        if "PASSED" in words:
            self._passed += 1
        elif ("FAILED" in words or "ERROR" in words) and "%]" in line:  # without %, the summary names it again
            self._failed += 1
            say(f"{self._tier}: {line.strip()}")
        return f"{self._passed} passed" + (f", {self._failed} failed" if self._failed else "")


def entry() -> int:
    try:
        return main(sys.argv[1:])
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return 130
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stderr or ''}", file=sys.stderr)
        return 1
