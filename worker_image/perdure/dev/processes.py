"""Workers as processes of this machine: started with the environment that the operator gives to pods.

A worker here dies with `perdure dev`, however that ends: the kernel sees to it where util-linux is there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAST_WORDS = 20
"""Lines of a worker's log that are shown when it ends by itself: a traceback fits."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is told, in the terms of its environment."""

    database_url: str
    modules: Sequence[str]
    bootstrap: str | None
    paths: Sequence[Path]
    namespace: str
    pool: str
    queues: Sequence[str]
    slots: int
    lease_seconds: float
    log_folder: Path


@dataclass(slots=True)
class WorkerProcess:
    """One worker process. `pod_uid` is what the database knows its pod by."""

    name: str
    pod_uid: str
    log: Path
    process: asyncio.subprocess.Process = field(repr=False)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero the signal that ended it."""
        return self.process.returncode

    async def kill(self) -> None:
        """SIGKILL, as by a node that loses power; returns when the process is gone."""
        if self.exit_code is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self, grace: float) -> None:
        """SIGTERM: it finishes the steps in progress and gives its runs back. After `grace` seconds SIGKILL."""
        if self.exit_code is None:
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), grace)
        except TimeoutError:
            await self.kill()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:])


async def start(settings: WorkerSettings, number: int) -> WorkerProcess:
    """Start worker `number`; returns at once, it is not ready yet.

    Its UID follows from its name: started again, after `perdure dev` was killed, it ends its predecessor's claims at
    once, as a restarted container does.
    """
    name = f"dev-{number}"
    pod_uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{settings.namespace}/{settings.pool}/{name}"))
    log = settings.log_folder / f"{name}.log"
    command = [sys.executable, "-m", "perdure.worker"]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig=KILL", *command]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **environment(settings, name, pod_uid)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us: we stop the workers in order
        )
    return WorkerProcess(name, pod_uid, log, process)


def environment(settings: WorkerSettings, name: str, pod_uid: str) -> Mapping[str, str]:
    """The variables that the operator would set in a pod. Ports are left to the system, as workers share the host."""
    return {
        "PERDURE_DATABASE_URL": settings.database_url,
        "PERDURE_MODULES": ",".join(settings.modules),
        **({} if settings.bootstrap is None else {"PERDURE_BOOTSTRAP": settings.bootstrap}),
        "PERDURE_NAMESPACE": settings.namespace,
        "PERDURE_POOL": settings.pool,
        "PERDURE_VERSION": "dev",
        "PERDURE_QUEUES": ",".join(settings.queues),
        "PERDURE_SLOTS": str(settings.slots),
        "PERDURE_LEASE_SECONDS": f"{settings.lease_seconds:g}",
        "PERDURE_POD_NAME": name,
        "PERDURE_POD_UID": pod_uid,
        "PERDURE_METRICS_PORT": "0",
        "PERDURE_PROBE_PORT": "0",
        "PYTHONPATH": os.pathsep.join([*map(str, settings.paths), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
