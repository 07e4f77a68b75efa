"""Runs started, awaited and cancelled by `perdure.Client`, whose connections break like those of the workers.

A start whose answer was lost is made again with the same id, until it is known that the run exists; a wait that broke
off goes on. What the client comes to know is compared with the database at the end.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import perdure
from perdure.model.states import CancelMode, RunStatus

from tests.faults.flows import interpret
from tests.faults.load import Seen, Started
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import CLIENT, client_schedule
from tests.faults.strike import Tasks, on_a_statement

T = TypeVar("T")

AGAIN_SECONDS = 0.1

NAMESPACE = "ns"


class Clients:
    """Two clients, as of two programs that start the same runs, behind one proxy."""

    def __init__(self, seed: int, url: str, port: int, faults: Counter[str], done: Counter[str]) -> None:
        """`faults` counts what struck, `done` what was done through here."""
        self.proxy = FaultProxy(port)
        self._seed = seed
        self._url = url
        self._faults = faults
        self._done = done
        self._clients: list[perdure.Client] = []

    async def __aenter__(self) -> Self:
        await self.proxy.__aenter__()
        self._clients = [perdure.Client(self.proxy.through(self._url), namespace=NAMESPACE) for _ in range(2)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        await self.proxy.__aexit__(kind, error, trace)

    async def start(self, run: Started) -> None:
        """Start the run; known to exist on return. One that is started `twice` is so by both at the same time."""
        self._done["runs_started_by_clients"] += 1
        workflow, given = self._workflow(run), run.program.input
        if run.program.by != "twice":
            await self._start(self._clients[0], workflow, given, run)
            return
        first, second = await asyncio.gather(*(self._start(client, workflow, given, run) for client in self._clients))
        if first != second:
            run.trouble.append(f"two starts of one id gave {first} and {second}")
        try:
            other = await self._start(self._clients[1], workflow, {"nodes": []}, run)
        except perdure.ConflictingWorkflow:
            return
        run.trouble.append(f"its id was given to a start with another input: {other}")

    async def cancel(self, run: Started, mode: CancelMode) -> RunStatus:
        """Ask for its end; what the client was told."""
        return await self._until_answered(
            lambda: self._clients[1].handle(run.id).cancel("somebody wanted it", mode=mode), "requests_made_again"
        )

    async def result(self, run: Started) -> Seen:
        """Wait for its end; what the client saw. Waits of some runs have a limit and are made again."""
        try:
            value = await self._until_answered(lambda: self._value(run), "waits_made_again")
        except perdure.WorkflowCancelled:
            return Seen(RunStatus.CANCELLED)
        except perdure.MaxRecoveryAttemptsExceeded:
            return Seen(RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED)
        except Exception as error:
            code = error.code if isinstance(error, perdure.PerdureError) else ""
            return Seen(RunStatus.FAILED, error=code or type(error).__name__)
        return Seen(RunStatus.SUCCEEDED, output=json.dumps(value))

    async def _value(self, run: Started) -> Any:
        if run.program.by == "run":
            return await self._clients[0].run(self._workflow(run), run.program.input)
        limit = Random(f"{run.id}:limit").choice((None, 0.5, 3.0))
        while True:
            try:
                return await self._clients[0].handle(run.id, interpret).result(timeout=limit)
            except perdure.WaitTimeout:
                self._done["waits_given_up"] += 1

    async def _start(self, client: perdure.Client, workflow: Any, given: Any, run: Started) -> str:
        """Id of the run that the start gives."""

        async def start() -> str:
            try:
                handle = await client.start(workflow, given)
            except perdure.StoreUnavailable as error:
                if error.run_ids != (run.id,):
                    run.trouble.append(f"a start that broke off names {error.run_ids}")
                raise
            return str(handle.id)

        return await self._until_answered(start, "starts_made_again")

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], counted: str) -> T:
        while True:
            try:
                return await ask()
            except perdure.StoreUnavailable:
                self._done[counted] += 1
                await asyncio.sleep(AGAIN_SECONDS)

    def _workflow(self, run: Started) -> Any:
        return interpret.options(id=run.id, timeout=run.program.timeout)


class ClientFaults:
    """The faults of a seed on the way of the clients; counted under names of their own."""

    def __init__(self, clients: Clients, seed: int, count: Counter[str], latest: float) -> None:
        self._proxy = clients.proxy
        self._seed = seed
        self._count = count
        self._latest = latest
        self._tasks = Tasks()

    async def run(self) -> None:
        """Until cancelled."""
        for fault in client_schedule(self._seed):
            await asyncio.sleep(fault.after)
            self._tasks.begin(self._strike(fault))

    async def end(self) -> None:
        """Let those under way end, strike no more."""
        self._proxy.disarm_all()
        await self._tasks.over()
        self._proxy.heal()

    async def _strike(self, fault: Any) -> None:
        if fault.kind in ("silence", "refuse"):
            getattr(self._proxy, fault.kind)()
            await asyncio.sleep(fault.seconds)
            self._proxy.heal()
        elif not await on_a_statement(self._proxy, fault.armed(self._latest)):
            return
        self._count[CLIENT + fault.kind] += 1
