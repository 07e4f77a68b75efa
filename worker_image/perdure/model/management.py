"""PURE. What may be done with runs that are there: verbs, where a history is cut, and what is decided on a locked row.

Made by client and engine, carried out by `store.management`. The decisions here are asked about rows that are locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from perdure.errors import InvalidArgument
from perdure.model.start import ID_MAX, attributes_text, check_text, new_run_id
from perdure.model.states import CancelMode, RunStatus

ID_LONGEST = 1100
"""Longest id of a run that is looked for, in characters: children of children have longer ones than can be chosen."""

MAX_BULK = 10_000
"""Runs in one bulk call: all of them are locked until the last is done, some seconds at most."""


# -- where a history is cut


class CutKind(StrEnum):
    """How a cut is said."""

    BEGINNING = "beginning"
    STEP = "step"
    NAME = "name"
    LAST_STEP = "last step"
    LAST_FAILURE = "last failure"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the recorded steps of a run are cut: what comes before is kept, what is there and later is done again.

    `Cut.BEGINNING` keeps nothing, `Cut.LAST_STEP` all but the last recorded step, `Cut.LAST_FAILURE` all before the
    last step that failed. `Cut.step(3)` cuts before the step with index 3, `Cut.named("charge")` before the first of
    that name. Where a cut is asked for, a number or a name says the last two, too."""

    kind: CutKind
    index: int | None = None
    name: str | None = None

    BEGINNING: ClassVar[Cut]
    LAST_STEP: ClassVar[Cut]
    LAST_FAILURE: ClassVar[Cut]

    @staticmethod
    def step(index: int) -> Cut:
        """Before the step with this index. Raises `InvalidArgument`."""
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 2**31:
            raise InvalidArgument(f"the index of a step is a whole number from 0 on, not {index!r}")
        return Cut(CutKind.STEP, index=index)

    @staticmethod
    def named(name: str) -> Cut:
        """Before the first step of this name. Raises `InvalidArgument`."""
        check_text("the name of a step", "" if name is None else name, ID_LONGEST)
        return Cut(CutKind.NAME, name=name)

    @property
    def recorded(self) -> Any:
        """As a JSON value."""
        match self.kind:
            case CutKind.STEP:
                return self.index
            case CutKind.NAME:
                return [self.name]
            case _:
                return str(self.kind)


Cut.BEGINNING = Cut(CutKind.BEGINNING)
Cut.LAST_STEP = Cut(CutKind.LAST_STEP)
Cut.LAST_FAILURE = Cut(CutKind.LAST_FAILURE)


def cut_of(value: Cut | int | str) -> Cut:
    """A cut; a number is the index of a step, a text the name of one. Raises `InvalidArgument`."""
    if isinstance(value, Cut):
        return value
    if isinstance(value, str):
        return Cut.named(value)
    return Cut.step(value)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a cut is found by: index of the last recorded step, of the last that failed, of the first of the name."""

    last: int | None
    failed: int | None
    named: int | None


def index_of(cut: Cut, recorded: Recorded, run_id: str) -> int:
    """The index at which it cuts. Raises `InvalidArgument` when the run has recorded no such step."""
    match cut.kind:
        case CutKind.BEGINNING:
            return 0
        case CutKind.LAST_STEP:
            found, what = recorded.last, "no step"
        case CutKind.LAST_FAILURE:
            found, what = recorded.failed, "no step that failed"
        case CutKind.NAME:
            found, what = recorded.named, f"no step named {cut.name}"
        case CutKind.STEP:
            assert cut.index is not None
            behind = 0 if recorded.last is None else recorded.last + 1
            found = cut.index if cut.index <= behind else None
            what = f"no step {cut.index - 1}, so that none comes behind it"
    if found is None:
        raise InvalidArgument(f"run {run_id} has recorded {what}")
    return found


# -- verbs


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask for the end of the run, and with `cascade` of those that it has started. Raises `InvalidArgument`."""

    reason: str
    mode: CancelMode = CancelMode.GRACEFUL
    cascade: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or "\0" in self.reason:
            raise InvalidArgument(f"the reason of a cancel is a text without NUL, not {self.reason!r}")
        if self.mode not in tuple(CancelMode):
            known = ", ".join(repr(each.value) for each in CancelMode)
            raise InvalidArgument(f"the mode of a cancel is one of {known}, not {self.mode!r}")


@dataclass(frozen=True, slots=True)
class Resume:
    """Take the run up again where it stands."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Undo the steps from the cut on and go on from there."""

    to: Cut


@dataclass(frozen=True, slots=True)
class Fork:
    """Make the run `new_id` that goes on from the cut; `children` are replaced, (old id, new id) each."""

    new_id: str
    at: Cut
    children: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Cancel the run if it goes on, and remove it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Let it begin so many seconds from now."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """Set some attributes, `changed` as JSON text, and remove others."""

    changed: str
    removed: tuple[str, ...] = ()


Verb = Cancel | Resume | Rewind | Fork | Delete | Delay | SetAttributes


@dataclass(frozen=True, slots=True)
class Undone:
    """Of a run whose steps were undone: the index of the step that says so, and of the first of those."""

    at: int
    first: int


@dataclass(frozen=True, slots=True)
class Managed:
    """What became of one run. `id` is the new one of a fork. `ready`: it became claimable by this. `ended`: it ended by
    this, and nobody else tells of that."""

    id: str
    status: RunStatus
    namespace: str
    pool: str
    ready: bool = False
    ended: bool = False
    parent_id: str | None = None


def attributes_of(changes: Mapping[str, Any]) -> SetAttributes:
    """A value of None removes the attribute. Raises `InvalidArgument` for what cannot be one."""
    text = attributes_text(changes)
    removed = tuple(name for name, value in changes.items() if value is None)
    if removed:
        text = attributes_text({name: value for name, value in changes.items() if value is not None})
    return SetAttributes(text, removed)


# -- decisions


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands whose row is locked. `name`: of its resource. `started`: a worker has had it. `reopen`: its last
    attempt failed, and what failed is done again. `undone`: what it had done is undone, or was begun to be."""

    id: str
    namespace: str
    pool: str
    name: str | None
    status: RunStatus
    cancelled: bool
    suspended: bool
    parent_id: str | None
    started: bool
    reopen: bool
    undone: bool = False


def resumes(run: Standing) -> bool:
    """Whether there is anything to take up: not in a run that has succeeded, or goes on by itself."""
    if run.status in {RunStatus.RUNNING, RunStatus.ENQUEUED}:
        return run.cancelled or (run.suspended and run.name is None)
    return run.status is not RunStatus.SUCCEEDED


def reopens(run: Standing) -> bool:
    """Whether the failed steps that ended its last attempt are done again."""
    return run.status is RunStatus.FAILED or run.reopen


def keeps_undone(cut: int, undone: Undone) -> bool:
    """Whether a cut at this index of a run whose steps were undone keeps some that are not done any more: it lies
    behind the first of them, and before what undoes them."""
    return undone.first < cut <= undone.at


def may_be_delayed(run: Standing) -> bool:
    """Whether it has not begun, or waits for its next attempt."""
    return run.status is RunStatus.DELAYED or (run.status is RunStatus.ENQUEUED and not run.started)


def ids_of(values: Iterable[str]) -> list[str]:
    """Ids of a bulk call, sorted, each once. Raises `InvalidArgument`."""
    if isinstance(values, str):
        raise InvalidArgument(f"ids are a list of ids, not the text {values!r}")
    given = list(values)
    for each in given:
        check_text("the id of a run", "" if each is None else each, ID_LONGEST)
    found = sorted(set(given))
    if len(found) > MAX_BULK:
        raise InvalidArgument(f"{len(found)} runs in one call, at most {MAX_BULK} are allowed: all or none is done")
    return found


def fork_of(new_id: str | None, at: Cut | int | str, children: Mapping[str, str] | None) -> Fork:
    """A fork under this id, or a new one; of children the ids, old and new. Raises `InvalidArgument`."""
    check_text("id", new_id, ID_MAX)
    pairs = () if children is None else tuple(sorted(children.items()))
    for each in (run_id for pair in pairs for run_id in pair):
        check_text("the id of a child", "" if each is None else each, ID_LONGEST)
    return Fork(new_id or new_run_id(), cut_of(at), pairs)
