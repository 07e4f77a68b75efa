"""The process: settings → logs → probes → modules → worker, and what signals mean. The only composition root.

`python -m perdure.worker` and `perdure worker` call `main`. Signal handlers stand before any user code is imported:
process 1 of a container ignores what has no handler, and imports may take minutes. First SIGTERM or SIGINT: drain;
second: give everything back at once; third: end, whatever hangs. Exit codes: 0 clean, 1 could not start or could not
give everything back, or the third signal, 75 ended itself because its lease was long lost.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from perdure.api import default_registry
from perdure.declarative import register as register_declared
from perdure.engine.registry import Registry
from perdure.engine.serialization import CODEC_THREADS
from perdure.errors import ConfigurationError, PerdureError
from perdure.store.pool import database_url
from perdure.telemetry import logs, names
from perdure.telemetry.build import VERSION
from perdure.telemetry.http import HttpServer, exposition, probe
from perdure.telemetry.prometheus import Metrics
from perdure.worker.answers import StatusApi
from perdure.worker.lasting import STEP_THREADS
from perdure.worker.probes import Probes
from perdure.worker.settings import WorkerSettings, load
from perdure.worker.worker import State, Worker, new_metrics

log = logs.get_logger(__name__)

OK, FAILED = 0, 1

GC_THRESHOLDS = (20_000, 20, 50)
"""How many new objects the garbage collector lets come together, and how many of its small rounds make a large one. At
Python's own 700 it looks at all that live runs hold every few steps: with 800 runs that was a third of the worker's
time. What it lets lie meanwhile is a few megabytes, and only garbage that refers to itself."""

TASK_GRACE = 1.0
"""Seconds for tasks that user code left behind to end once they are cancelled."""

THREAD_GRACE = 0.2
"""Seconds for an idle thread to notice that it is not needed any more."""


class Signals:
    """Counts SIGTERM and SIGINT. Before there is a worker the first one ends the process."""

    def __init__(self) -> None:
        self._worker: tuple[asyncio.AbstractEventLoop, Worker] | None = None
        self._count = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def deliver_to(self, worker: Worker) -> None:
        """From now on signals stop this worker, on the running loop."""
        self._worker = (asyncio.get_running_loop(), worker)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._worker is None:
            # Nothing is held yet: SystemExit would pass through user code, which may swallow it.
            os._exit(OK)
        loop, worker = self._worker
        if self._count > 1 and worker.state is State.BOOTSTRAPPING:
            # The hook neither gives the loop back nor ends when it is cancelled.
            os._exit(OK)
        if self._count > 2:
            # The loop is blocked, or the end of the hook: what was not given back by now goes with the lease.
            os._exit(FAILED)
        loop.call_soon_threadsafe(worker.drain if self._count == 1 else worker.force)


def main() -> int:
    """Run a worker until a signal ends it; the exit code."""
    signals = Signals()
    logs.configure()
    try:
        settings, notes = load()
        _configure_logs(settings)
        for note in notes:
            log.warning("a setting is not used as it is given", setting=note)
        url = database_url()
        if not settings.modules:
            raise ConfigurationError("PERDURE_MODULES is empty: name the modules that define workflows, with commas")
        metrics = new_metrics()
        metrics.set(names.BUILD_INFO, 1, "worker", VERSION)
        probes = Probes(settings)
        with _serving(settings, probes, metrics):
            registry = load_modules(settings.modules)
            probes.importing = False
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(_run(settings, registry, url, metrics, probes, signals))
    except PerdureError as error:
        _show_what_is_left()
        # With the stack of what caused it: the author of a module that cannot be imported needs the line.
        log.critical("the worker cannot start", code=error.code, error=error.message, exc_info=error.__cause__)
        return FAILED
    except Exception:
        _show_what_is_left()
        log.critical("the worker ended by an error of its own", exc_info=True)
        return FAILED


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop where it is installed (extra `speed`); None: Python's own."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def _configure_logs(settings: WorkerSettings) -> None:
    """Before modules are imported, since an application may set up its handlers there, too."""
    style = {"json": True, "text": False}.get(settings.logs)
    logs.configure(settings.log_level, json=style)
    if settings.logs == "application":
        logs.leave_to_application()


def _show_what_is_left(level: str = "INFO") -> None:
    """Our handler again, where the application was to bring its own and has brought none."""
    if logs.left_without_handlers():
        logs.configure(level)


def load_modules(modules: tuple[str, ...]) -> Registry:
    """Import the modules; the registry they filled. Raises ConfigurationError with the module's own error."""
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)
    for name in modules:
        try:
            importlib.import_module(name)
        except PerdureError:
            raise
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise ConfigurationError(
                    f"PERDURE_MODULES names {name}, and there is no module {error.name} on {', '.join(sys.path)}"
                ) from None
            raise ConfigurationError(f"module {name} cannot be imported: {error}") from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise ConfigurationError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error
    register_declared(default_registry)
    # Said now rather than at the first registration: annotations that cannot be used.
    default_registry.manifest()
    return default_registry


@contextmanager
def _serving(settings: WorkerSettings, probes: Probes, metrics: Metrics) -> Iterator[None]:
    routes = {"/startupz": probe(probes.startup), "/readyz": probe(probes.ready), "/livez": probe(probes.live)}
    servers: list[HttpServer] = []
    try:
        for port, served in ((settings.probe_port, routes), (settings.metrics_port, {"/metrics": exposition(metrics)})):
            try:
                servers.append(HttpServer(served, port=port))
            except OSError as error:
                raise ConfigurationError(f"cannot listen on port {port}: {error}") from error
        log.info("listening", probes=servers[0].port, metrics=servers[1].port)
        yield
    finally:
        for server in servers:
            server.close()


async def _run(
    settings: WorkerSettings, registry: Registry, url: str, metrics: Metrics, probes: Probes, signals: Signals
) -> int:
    worker = Worker(settings, registry, database_url=url, metrics=metrics, status_api=_status_api(metrics))
    # What the worker says of itself at each registration is to stay true.
    worker.when_set_up = lambda: registry.freeze("the worker has begun")
    probes.worker = worker
    signals.deliver_to(worker)
    # What was imported stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await worker.start()
    await worker.wait()
    code = OK if worker.clean else FAILED
    await _end_tasks_left_behind(code)
    return code


async def _end_tasks_left_behind(code: int) -> None:
    """Ends the process where `asyncio.run` would wait for ever: for a body that swallows its cancellation. All that
    counts is written by now."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, deaf = await asyncio.wait(left, timeout=TASK_GRACE)
        if deaf:
            log.error("tasks do not end when cancelled and are cut off", tasks=[task.get_name() for task in deaf])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _status_api(metrics: Metrics) -> StatusApi | None:
    """The API of the cluster this is a pod of. The client takes a third of a second to import, so only there."""
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    from perdure.worker.kubeapi import KubeApi

    return KubeApi.in_cluster(metrics)


def run_process(entry: Callable[[], int] = main) -> None:
    """Run `main` and end the process with its code, even if threads of step bodies and codecs still run: nobody waits
    for them any more, and what they would still do is dropped by the fence."""
    code = entry()
    sys.stdout.flush()
    sys.stderr.flush()
    for thread in threading.enumerate():
        if thread.name.startswith((STEP_THREADS, CODEC_THREADS)):
            thread.join(THREAD_GRACE)
            if thread.is_alive():
                os._exit(code)
    sys.exit(code)
