"""Compares what is in the database at the end with what the programs must come to. Everything found is a problem.

`judge` is pure: rows in, problems out; `Evidence` is read by `read`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from perdure.model.states import RunStatus, StepStatus

from tests.faults.database import Database
from tests.faults.load import Started
from tests.faults.model import Expected, ExpectedStep, expected


class Kind(StrEnum):
    """What is counted: all of these must be zero."""

    RUN_LOST = "runs_lost"
    STEP_LOST = "steps_lost"
    RERUN = "finished_steps_rerun"
    ZOMBIE = "zombie_writes"
    STUCK = "runs_stuck"


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

    @property
    def final_steps(self) -> int:
        """Steps whose outcome is recorded."""
        return sum(StepStatus(row["status"]).final for rows in self.steps.values() for row in rows.values())


async def read(database: Database) -> Evidence:
    """All of it."""
    found = Evidence(
        runs={row["id"]: row for row in await database.rows("report")},
        rerun=list(await database.rows("rerun")),
        zombies=list(await database.rows("zombies")),
        odd=list(await database.rows("odd")),
        not_once=list(await database.rows("not_once")),
    )
    for row in await database.rows("steps"):
        found.steps.setdefault(row["workflow_id"], {})[row["step_index"]] = row
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
    for run in started:
        problems += _of_run(run, found)
    return problems


def _not_once(row: Row) -> Problem:
    sentence = f"step {row['step_index']}: its own SQL is there {row['times']} times, finished: {row['finished']}"
    if row["times"] == 0:
        return Problem(Kind.STEP_LOST, row["run"], sentence)
    return Problem(Kind.RERUN if row["finished"] else Kind.ZOMBIE, row["run"], sentence)


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
    if cancelled or (run.orphan and status is RunStatus.CANCELLED):
        want.status = RunStatus.CANCELLED
    problems = [Problem(Kind.RUN_LOST, run.id, sentence) for sentence in _wrong_end(row, status, want)]
    # A run that is stopped from outside, or that takes its workers with it, ends wherever it is.
    whole = want.status not in (RunStatus.CANCELLED, RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED)
    wrong = _wrong_steps(want, steps, bodies, whole=whole)
    if whole and row["run_attempts"] != want.run_attempts:
        wrong.append(f"{row['run_attempts']} attempts of its body are counted and must be {want.run_attempts}")
    for child, program in want.children.items():
        problems += _of_run(Started(child, program, orphan=not whole), found)
    return problems + [Problem(Kind.STEP_LOST, run.id, sentence) for sentence in wrong]


def _wrong_end(row: Row, status: RunStatus, want: Expected) -> list[str]:
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


def _wrong_steps(
    want: Expected, steps: Mapping[int, Row], bodies: Mapping[tuple[int, int], int], *, whole: bool
) -> list[str]:
    """`whole`: every step must be there; else what is there must be right."""
    problems = [f"step {index} is recorded, which the program does not have" for index in steps.keys() - range_of(want)]
    for index, step in enumerate(want.steps):
        row = steps.get(index)
        recorded = None if row is None else StepStatus(row["status"])
        if recorded is None or not recorded.final:
            if whole and step.status is not None:
                problems.append(f"step {index} ({step.name}) is not recorded as finished")
            continue
        assert row is not None
        if not whole and step.first is not None and recorded is step.first.status:
            step = step.first
        problems += _wrong_step(index, row, recorded, step)
        problems += _wrong_bodies(index, step, bodies)
    known = {index for index, _ in bodies}
    problems += [f"a body of step {index} began, which the program does not have" for index in known - range_of(want)]
    return problems


def _wrong_step(index: int, row: Row, recorded: StepStatus, step: ExpectedStep) -> list[str]:
    seen = (row["name"], recorded, row["output"], row["attempts"])
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
