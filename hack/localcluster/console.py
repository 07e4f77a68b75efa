"""How the tools here speak: lines with a time on stderr, a sign of life on long work, errors that say what to do."""

import fcntl
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

# Long enough to keep a CI log readable, short enough that nobody believes the tool hangs.
HEARTBEAT_SECONDS = 10.0
# A compiler's or installer's last words: the cause is nearly always in them.
ERROR_LINES = 25


class Failure(Exception):
    """Ends the command: the text is all the user gets, so it says what failed and what to do."""

    exit_code = 1


class Impossible(Failure):
    """This machine cannot do it; nothing is broken. Callers (`make demo`, tests) choose another way."""

    exit_code = 3


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def run(argv: Sequence[str | Path], *, text: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a short command quietly and give its output; its own error message becomes the Failure's."""
    try:
        done = subprocess.run(argv, input=text, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed: `hack/cluster deps` installs what is missing") from None
    if done.returncode != 0:
        command = " ".join(map(str, argv))
        raise Failure(f"`{command}` ended with {done.returncode}:\n{done.stderr or done.stdout}".rstrip())
    return done.stdout


def run_with_progress(
    argv: Sequence[str | Path],
    label: str,
    *,
    progress: Callable[[str], str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long command. `progress` sees each line of its output and answers how far it is, for the heartbeat."""
    started = time.monotonic()
    next_beat = started + HEARTBEAT_SECONDS
    last_words: deque[str] = deque(maxlen=ERROR_LINES)
    state = ""
    try:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed: `hack/cluster deps` installs what is missing") from None
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector, process.stdout as output:
            selector.register(output, selectors.EVENT_READ)
            pending = b""
            while True:
                if selector.select(max(0.0, next_beat - time.monotonic())):
                    chunk = os.read(output.fileno(), 65536)
                    if not chunk:
                        break
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        last_words.append(line.decode(errors="replace"))
                        state = progress(last_words[-1])
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + HEARTBEAT_SECONDS
                    say(f"{label}: {duration(time.monotonic() - started)}{', ' + state if state else ''}")
        code = process.wait()
    except BaseException:
        # Ctrl-C reaches the child too; it must not outlive us and go on holding locks.
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait()
        raise
    if code != 0:
        raise Failure(f"{label} failed (exit code {code}):\n" + "\n".join(last_words))


def wait_until(what: str, check: Callable[[], object], *, seconds: float, interval: float = 0.1) -> None:
    """Poll `check` until it gives something true. A slow machine is told from a dead one by the deadline."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come about within {duration(seconds)}")
        time.sleep(interval)


@contextmanager
def exclusively(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock on `path` against other processes; where that takes waiting, `waiting` is said."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
