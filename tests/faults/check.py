"""Compares what is in the database at the end with what the programs must come to. Everything found is a problem.

`judge` is pure: rows in, problems out; `Evidence` is read by `read`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from perdure.model.calls import CallName
from perdure.model.states import RunStatus, StepStatus, Undo

from tests.faults.database import Database
from tests.faults.expectation import STEP_NAMES, Expected, ExpectedStep
from tests.faults.load import Seen, Started
from tests.faults.model import expected
from tests.faults.numbered import legible
from tests.faults.programs import Program

EARLY = timedelta(milliseconds=50)
"""So much before the deadline an owner may end its run: its clock is another one than the database's."""


REMOVED: Mapping[str, Any] = {"deleted": True, "status": RunStatus.CANCELLED}
"""What is left of a run that was removed."""


class Kind(StrEnum):
    """What is counted: all of these must be zero."""

    RUN_LOST = "runs_lost"
    STEP_LOST = "steps_lost"
    RERUN = "finished_steps_rerun"
    ZOMBIE = "zombie_writes"
    STUCK = "runs_stuck"
    DIFFERS = "histories_differing"


@dataclass(frozen=True)
class Problem:
    """One promise that was not kept."""

    kind: Kind
    run: str
    sentence: str


Row = Mapping[str, Any]


@dataclass
class Evidence:
    """What the database knows at the end."""

    runs: dict[str, Row] = field(default_factory=dict)
    steps: dict[str, dict[int, Row]] = field(default_factory=dict)
    bodies: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    """By run: how often each (step, attempt) has begun."""
    rerun: list[Row] = field(default_factory=list)
    zombies: list[Row] = field(default_factory=list)
    odd: list[Row] = field(default_factory=list)
    """Sentences about what must not happen on the way."""
    not_once: list[Row] = field(default_factory=list)
    """Steps whose own SQL is not there exactly as often as their outcome."""
    keys: list[Row] = field(default_factory=list)
    """Sentences about idempotency keys, each with its kind."""
    key_uses: int = 0
    """How often a step has asked for an idempotency key."""

    @property
    def final_steps(self) -> int:
        """Steps whose outcome is recorded."""
        return sum(StepStatus(row["status"]).final for rows in self.steps.values() for row in rows.values())


async def read(database: Database) -> Evidence:
    """All of it."""
    # The workers' clock, which only goes forward, is this process' own; so is the database's time of day.
    ahead = time.time() - time.monotonic()
    found = Evidence(
        runs={row["id"]: legible(row) for row in await database.rows("report")},
        rerun=list(await database.rows("rerun", ahead)),
        zombies=list(await database.rows("zombies")),
        odd=list(await database.rows("odd", ahead)),
        not_once=list(await database.rows("not_once")),
        keys=list(await database.rows("keys")),
        key_uses=(await database.rows("key_uses"))[0]["times"],
    )
    for row in await database.rows("steps"):
        found.steps.setdefault(row["workflow_id"], {})[row["step_index"]] = legible(row)
    for row in await database.rows("bodies"):
        found.bodies.setdefault(row["run"], {})[row["step_index"], row["attempt"]] = row["times"]
    return found


def judge(started: Iterable[Started], found: Evidence) -> list[Problem]:
    """Every promise that was not kept."""
    problems = [
        Problem(Kind.RERUN, row["run"], f"step {row['step_index']} was finished and its body began again")
        for row in found.rerun
    ]
    problems += [
        Problem(
            Kind.ZOMBIE, row["run"], f"a write of {row['what']} by somebody who did not own it (no. {row['number']})"
        )
        for row in found.zombies
    ]
    problems += [Problem(Kind.STEP_LOST, row["run"], row["sentence"]) for row in found.odd]
    problems += [_not_once(row) for row in found.not_once]
    problems += [Problem(Kind(row["kind"]), row["run"], row["sentence"]) for row in found.keys]
    known: set[str] = set()
    for run in started:
        known |= _ids(run.program, run.id)
        problems += _of_run(run, found)
        problems += _of_client(run, found.runs.get(run.id))
    problems += [Problem(Kind.ZOMBIE, run, "nobody started it") for run in found.runs.keys() - known]
    return problems


def covered(found: Evidence) -> Counter[str]:
    """How often there was what it is easy to miss."""
    steps = [row for rows in found.steps.values() for row in rows.values()]
    ended = Counter(
        "children_cancelled" if row["parent_id"] and not _by_deadline(row) else f"ended_by_{_reason(row)}"
        for row in found.runs.values()
        if row["status"] == RunStatus.CANCELLED
    )
    failed = sum(row["name"] == STEP_NAMES["result"] and row["status"] == StepStatus.FAILED for row in steps)
    done = sum(row["name"] == STEP_NAMES["transaction"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    others = sum(row["name"] == STEP_NAMES["select"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    quiet = sum(row["name"] == STEP_NAMES["debounce"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    races = sum(row["name"] == STEP_NAMES["race"] for row in steps)
    lost = sum(row["status"] == StepStatus.DROPPED for row in steps)
    streams = sum(row["name"] == STEP_NAMES["read"] and row["status"] == StepStatus.FAILED for row in steps)
    forks = sum(row["name"] == STEP_NAMES["fork"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    resumes = sum(row["name"] == STEP_NAMES["resume"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    rewinds = sum(row["name"] == STEP_NAMES["rewind"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    removals = sum(row["name"] == STEP_NAMES["delete"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    cancels = sum(row["name"] == STEP_NAMES["cancel"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    refused = sum(row["name"] == STEP_NAMES["start"] and row["status"] == StepStatus.FAILED for row in steps)
    patches = sum(row["name"] == STEP_NAMES["patch"] for row in steps)
    undone = sum(row["name"] == STEP_NAMES["back"] and row["status"] == StepStatus.SUCCEEDED for row in steps)
    seen = {
        "outputs_by_a_serializer": sum(row.get("numbered", False) for row in steps),
        "changes_patched": patches,
        "steps_undone": undone,
        "starts_refused": refused,
        "runs_forked": forks,
        "runs_resumed": resumes,
        "runs_rewound": rewinds,
        "runs_removed": removals,
        "runs_cancelled_by_runs": cancels,
        "races_decided": races,
        "branches_dropped": lost,
        "streams_read_to_their_end": streams,
        "debounced_starts": quiet,
        "failures_of_children_handled": failed,
        "ends_of_others_selected": others,
        "transactions": done,
        "idempotency_keys_asked": found.key_uses,
    }
    return ended + Counter(seen)


def _reason(row: Row) -> str:
    return "deadline" if _by_deadline(row) else "cancel"


def _by_deadline(row: Row) -> bool:
    """Whether a cancelled run ended as its time was over: an owner that ends it for that leaves no cancel behind."""
    undone = row.get("undo") == Undo.CANCELLED
    return "deadline" in (row["cancel_reason"] or "") or (row["cancel_mode"] is None and not undone)


def _not_once(row: Row) -> Problem:
    sentence = f"step {row['step_index']}: its own SQL is there {row['times']} times, finished: {row['finished']}"
    if row["times"] == 0:
        return Problem(Kind.STEP_LOST, row["run"], sentence)
    return Problem(Kind.RERUN if row["finished"] else Kind.ZOMBIE, row["run"], sentence)


def _of_client(run: Started, row: Row | None) -> list[Problem]:
    """What the client of the run was told, and the run itself."""
    problems = [Problem(Kind.RUN_LOST, run.id, sentence) for sentence in run.trouble]
    if row is None or not run.program.by or not RunStatus(row["status"]).finished:
        return problems
    if run.seen is None:
        return [*problems, Problem(Kind.STUCK, run.id, "it has ended and its client still waits for it")]
    status = RunStatus(row["status"])
    right = Seen(status)
    if status is RunStatus.SUCCEEDED:
        right = Seen(status, output=row["output"])
    elif status is RunStatus.FAILED:
        error = json.loads(row["error"])
        right = Seen(status, error=error.get("code") or error["type"].rpartition(".")[2])
    if run.seen != right:
        problems.append(Problem(Kind.RUN_LOST, run.id, f"its client saw {run.seen} and must see {right}"))
    return problems


def _ids(program: Program, run_id: str) -> set[str]:
    """The run, its children, and theirs."""
    children = expected(program, run_id).children
    return {run_id}.union(*(_ids(each, child) for child, each in children.items()))


def _of_run(run: Started, found: Evidence) -> list[Problem]:
    row = found.runs.get(run.id)
    if row is None:
        return [] if run.orphan else [Problem(Kind.RUN_LOST, run.id, "it was started and is not there")]
    status = RunStatus(row["status"])
    if not status.finished:
        return [Problem(Kind.STUCK, run.id, f"it is {status.name} for good")]
    want = expected(run.program, run.id)
    steps, bodies = found.steps.get(run.id, {}), found.bodies.get(run.id, {})
    cancelled = run.cancelled in (RunStatus.RUNNING, RunStatus.CANCELLED)
    excused = run.orphan or (_by_deadline(row) and row["deadline_at"] is not None)
    if cancelled or (excused and status is RunStatus.CANCELLED):
        want.status = RunStatus.CANCELLED
    problems = [Problem(Kind.RUN_LOST, run.id, sentence) for sentence in _wrong_end(row, status, want)]
    # A run that is stopped from outside, or that takes its workers with it, ends wherever it is.
    whole = want.status not in (RunStatus.CANCELLED, RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED)
    whole = whole or (want.undone and not run.orphan)
    told = {index: each for index, each in steps.items() if whole or not _of_its_own_cancel(each, want, found)}
    wrong = _wrong_steps(want, told, bodies, whole=whole)
    if whole and row["run_attempts"] != want.run_attempts:
        wrong.append(f"{row['run_attempts']} attempts of its body are counted and must be {want.run_attempts}")
    if row["run_attempts"] == 0:
        wrong += _wrong_order(want, steps)
    for child, program in want.children.items():
        if child in want.removed and (whole or found.runs.get(child, REMOVED)["deleted"]):
            problems += _of_removed(child, found)
        else:
            problems += _of_run(Started(child, program, orphan=not whole), found)
    return problems + [Problem(Kind.STEP_LOST, run.id, sentence) for sentence in wrong]


def _of_removed(run: str, found: Evidence) -> list[Problem]:
    """It is gone, or about to go: it has ended."""
    row = found.runs.get(run, REMOVED)
    if not row["deleted"]:
        return [Problem(Kind.RUN_LOST, run, "it was to be removed and is there")]
    return (
        [] if RunStatus(row["status"]).finished else [Problem(Kind.STUCK, run, "it is to be removed and does not end")]
    )


def _of_its_own_cancel(step: Row, want: Expected, found: Evidence) -> bool:
    """Whether it is the end of a child, or of its stream, that a cancelled run has recorded: its cancel may reach the
    child, and be what it hears of it, before it has ended itself."""
    children = (found.runs.get(child, {}) for child in want.children)
    cancelled = any(child.get("status") == RunStatus.CANCELLED for child in children)
    return cancelled and step["name"] in (CallName.RESULT, CallName.READ_STREAM) and step["status"] == StepStatus.FAILED


def _wrong_order(want: Expected, steps: Mapping[int, Row]) -> list[str]:
    """Whatever began had what it needs, and that is still there, however the run ended."""
    final = {index for index, row in steps.items() if StepStatus(row["status"]).final}
    return [
        f"step {index} is recorded and step {before} before it has no outcome"
        for index in steps.keys() & range_of(want)
        for before in range(want.steps[index].needs)
        if before not in final and not want.steps[before].may_lack
    ]


def _wrong_end(row: Row, status: RunStatus, want: Expected) -> list[str]:
    if status is not RunStatus.CANCELLED and row["cancel_mode"] is not None:
        return [f"it ended as {status.name} although it was to be cancelled: {row['cancel_reason']}"]
    if status is RunStatus.CANCELLED and _by_deadline(row) and not _over(row):
        return [f"it ended at {row['finished_at']} because of its deadline, which is {row['deadline_at']}"]
    if status is not want.status:
        return [f"it ended as {status.name} and must end as {want.status.name}: {row['error']}"]
    if status is RunStatus.SUCCEEDED and row["output"] != want.output:
        return [f"its output is {row['output']} and must be {want.output}"]
    if status is RunStatus.FAILED:
        error = json.loads(row["error"] or "{}")
        if (want.code and error.get("code") != want.code) or (want.error and error.get("type") != want.error):
            return [f"it failed with {row['error']} and must fail with {want.code or want.error}"]
        if not error.get("message"):
            return ["it failed and nothing says why"]
    return []


def _over(row: Row) -> bool:
    return row["deadline_at"] is not None and bool(row["deadline_at"] <= row["finished_at"] + EARLY)


def _wrong_steps(
    want: Expected, steps: Mapping[int, Row], bodies: Mapping[tuple[int, int], int], *, whole: bool
) -> list[str]:
    """`whole`: every step must be there; else what is there must be right."""
    problems = [f"step {index} is recorded, which the program does not have" for index in steps.keys() - range_of(want)]
    for index, step in enumerate(want.steps):
        row = steps.get(index)
        recorded = None if row is None else StepStatus(row["status"])
        if recorded is None or not recorded.final:
            if whole and step.status is not None and not (step.may_lack and row is None):
                problems.append(f"step {index} ({step.name}) is not recorded as finished")
            continue
        assert row is not None
        if not whole and step.first is not None and recorded is step.first.status:
            step = step.first
        problems += _wrong_step(index, row, recorded, step)
        # Of several attempts of the run, the last ones may never have come.
        problems += _wrong_bodies(index, step if whole else replace(step, repeats=1), bodies)
    known = {index for index, _ in bodies}
    problems += [f"a body of step {index} began, which the program does not have" for index in known - range_of(want)]
    return problems


def _wrong_step(index: int, row: Row, recorded: StepStatus, step: ExpectedStep) -> list[str]:
    output = None if step.any_output else row["output"]
    seen = (row["name"], recorded, output, row["attempts"])
    right = (step.name, step.status, step.output, step.failures)
    return [] if seen == right else [f"step {index} is recorded as {seen} and must be {right}"]


def _wrong_bodies(index: int, step: ExpectedStep, bodies: Mapping[tuple[int, int], int]) -> list[str]:
    problems = [
        f"attempt {attempt} of step {index} is counted and its body has begun {bodies.get((index, attempt), 0)} times"
        for attempt in step.bodies
        if bodies.get((index, attempt), 0) < step.repeats
    ]
    beyond = sorted(attempt for at, attempt in bodies if at == index and attempt not in step.bodies)
    return problems + [f"there was an attempt {attempt} of step {index}" for attempt in beyond]


def range_of(want: Expected) -> set[int]:
    """The indexes that the program has."""
    return set(range(len(want.steps)))
