"""Whatever the statements do to a run, its status changes only as the model's table says, and its fence rises
whenever its owner changes. A trigger records every change that a long random story makes."""

import random
from contextlib import suppress

from perdure.errors import InvalidArgument, NonExistentWorkflow, WorkflowNotRewindable
from perdure.model.management import Cut, Delay, Delete, Resume, Rewind
from perdure.model.outcome import Cancelled, Ending, ErrorRecord, Failed, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import ClaimedRun, WaitingFor
from perdure.model.states import RUN_TRANSITIONS, UNDO_TRANSITIONS, CancelMode, RunStatus, Undo
from perdure.store import backlog, clients, runs, sweeps, undo, workers
from perdure.store.management import manage
from perdure.store.transaction import Claim

from tests.store.builders import Connection, add_run, add_worker, claim, finish, new_run, write

TRIGGER = """
CREATE TABLE seen (id text, old_status integer, new_status integer, old_fence bigint, new_fence bigint,
                   old_owner text, new_owner text, old_undo integer, new_undo integer);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen VALUES (new.id, old.status, new.status, old.fence, new.fence, old.worker_id, new.worker_id,
                             old.undo, new.undo);
    RETURN new;
END $$;
CREATE TRIGGER note BEFORE UPDATE ON perdure.workflows FOR EACH ROW EXECUTE FUNCTION note();
"""

ERROR = ErrorRecord("E", "m")
ENDINGS: list[Ending | None] = [
    Succeeded("1"),
    Failed(ERROR),
    Cancelled("why"),
    Mismatch(ERROR),
    Parked(WaitingFor("x"), -1.0),
    Parked(WaitingFor("x"), 100.0),
    Released("drain"),
    None,
]


class Story:
    """A few runs and workers to which anything may happen at any time."""

    def __init__(self, conn: Connection, chance: random.Random) -> None:
        self.conn = conn
        self.chance = chance
        self.made = 0
        self.workers: list[str] = []
        self.owned: list[tuple[str, ClaimedRun]] = []
        self.generation = 1

    async def step(self) -> None:
        events = [
            self.create,
            self.edit,
            self.hire,
            self.take,
            self.take,
            self.end,
            self.end,
            self.end,
            self.promise,
            self.promise,
            self.undo,
            self.die,
            self.cancel,
            self.sweep,
            self.remove,
            self.explain,
            self.manage,
            self.manage,
            self.run_again,
        ]
        await self.chance.choice(events)()

    def any_run(self) -> str:
        return f"r{self.chance.randrange(max(1, self.made))}"

    async def create(self) -> None:
        await add_run(
            self.conn, f"r{self.made}", max_run_attempts=1 + self.made % 2, max_recoveries=self.chance.randrange(3)
        )
        self.made += 1

    async def edit(self) -> None:
        if self.made:
            self.generation += 1
            mode = self.chance.choice([None, None, None, CancelMode.GRACEFUL, CancelMode.COMPENSATE])
            suspended = self.chance.random() < 0.3
            run = new_run(self.any_run(), generation=self.generation, suspended=suspended, cancel_mode=mode)
            await runs.upsert(self.conn, run)

    async def hire(self) -> None:
        name = f"w{len(self.workers)}"
        await add_worker(self.conn, name)
        self.workers.append(name)

    async def take(self) -> None:
        if self.workers:
            name = self.chance.choice(self.workers)
            self.owned += [(name, run) for run in await claim(self.conn, name, limit=3)]

    async def end(self) -> None:
        """Also of runs that were lost long ago."""
        if self.owned:
            name, run = self.chance.choice(self.owned)
            await write(self.conn, run, ending=self.chance.choice(ENDINGS), worker_id=name)

    async def promise(self) -> None:
        """Of a step that has succeeded already, half of the time."""
        if self.owned:
            name, run = self.chance.choice(self.owned)
            index = self.chance.randrange(3)
            claim = Claim(run.id, name, run.fence)
            await undo.promise(self.conn, claim, index, "back", "[null]")
            if self.chance.random() < 0.5:
                await write(self.conn, run, finish(index, 1 + index), worker_id=name)

    async def undo(self) -> None:
        if self.owned:
            name, run = self.chance.choice(self.owned)
            await undo.begin(self.conn, Claim(run.id, name, run.fence), 99)

    async def die(self) -> None:
        if self.workers:
            name = self.chance.choice(self.workers)
            if self.chance.random() < 0.3:
                await workers.stop(self.conn, name)
            else:
                await workers.mark_dead(self.conn, [f"uid-{name}"])
            await workers.move(self.conn, await workers.dead_with_runs(self.conn, 10), 2)

    async def cancel(self) -> None:
        await runs.cancel(self.conn, self.any_run(), self.chance.choice(list(CancelMode)), "why")

    async def sweep(self) -> None:
        await self.conn.execute(
            "UPDATE perdure.workflows SET wake_at = now() WHERE status = 20 AND id = $1", self.any_run()
        )
        if self.chance.random() < 0.2:
            await self.conn.execute("UPDATE perdure.workflows SET deadline_at = now() WHERE id = $1", self.any_run())
        await sweeps.wake_due(self.conn, 3)
        await sweeps.cancel_overdue(self.conn, 3)

    async def remove(self) -> None:
        if self.chance.random() < 0.2:
            await runs.resource_gone(self.conn, [self.any_run()])
            await runs.purge_gone(self.conn, 3)

    async def run_again(self) -> None:
        await clients.rerun(self.conn, self.any_run(), self.chance.randrange(1 << 30))

    async def manage(self) -> None:
        verb = self.chance.choice([Resume(), Resume(), Rewind(Cut.BEGINNING), Delay(1.0), Delete()])
        if isinstance(verb, Delete) and self.chance.random() < 0.8:
            return
        with suppress(NonExistentWorkflow, WorkflowNotRewindable, InvalidArgument):
            await manage(self.conn, [self.any_run()], verb)

    async def explain(self) -> None:
        await backlog.set_waiting(self.conn, [(self.any_run(), 0, WaitingFor("x"))])


async def test_statements_change_status_only_as_the_table_says(conn: Connection) -> None:
    await conn.execute(TRIGGER)
    story = Story(conn, random.Random(3))
    for _ in range(1600):
        await story.step()

    changes = await conn.fetch("SELECT DISTINCT old_status, new_status FROM seen WHERE old_status <> new_status")
    made = {(RunStatus(each["old_status"]), RunStatus(each["new_status"])) for each in changes}
    # The story is long enough to tell all of it.
    assert made == {(before, after) for before, afters in RUN_TRANSITIONS.items() for after in afters}

    changes = await conn.fetch("SELECT DISTINCT old_undo, new_undo FROM seen WHERE old_undo <> new_undo")
    undone = {(Undo(each["old_undo"]), Undo(each["new_undo"])) for each in changes}
    assert undone <= {(before, after) for before, afters in UNDO_TRANSITIONS.items() for after in afters}

    wrong = await conn.fetch(
        "SELECT * FROM seen WHERE new_fence < old_fence OR new_fence > old_fence + 1"
        " OR (new_fence = old_fence) <> (old_owner IS NOT DISTINCT FROM new_owner AND old_status = new_status)"
    )
    assert wrong == []
