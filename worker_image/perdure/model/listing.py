"""PURE. What is known of runs and of their steps, and how lists of them are asked for: views, filters, pages.

Made by client and engine, answered by `store.listing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypedDict

from perdure.errors import InvalidArgument
from perdure.model.management import ID_LONGEST, ids_of
from perdure.model.serialization import Serialization
from perdure.model.start import ID_MAX, NAME_MAX, PARTITION_KEY_MAX, attributes_text, check_text
from perdure.model.states import CancelMode, RunStatus, StepStatus

MAX_PAGE = 1000
"""Runs or steps in one page."""

MAX_PAGE_WITH_PAYLOADS = 100
"""The same where inputs and outcomes come with them, each up to a megabyte."""

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Before and after every instant of a run."""

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RunDetails:
    """One run as it stood when it was asked for. Instants are the database's; texts of JSON where it says so.

    `name` is that of its resource, None without one. `forked_from` and `forked_at`: the run whose steps before that
    index it began with. `rewinds`: how often it was rewound. `version`: that of the workers that may take it, None
    before the first claim. `timeout` is seconds. `worker`: the worker that has it. `waiting_for`: a sentence on what it
    waits for. `undoes`: it undoes its steps, or is about to, and then it ends. `serialization`: how its values are
    written, if its start has said so. `input`, `output` and `error` are texts as they are stored, None unless they were
    asked for: JSON, or `!name:` and what a serializer has written.
    """

    id: str
    namespace: str
    name: str | None
    workflow: str
    status: RunStatus
    pool: str
    queue: str
    priority: int
    partition_key: str | None
    version: str | None
    parent_id: str | None
    parent_step: int | None
    forked_from: str | None
    forked_at: int | None
    rewinds: int
    deduplication_id: str | None
    attributes: dict[str, Any]
    timeout: float | None
    deadline_at: datetime | None
    wake_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    run_attempts: int
    recoveries: int
    suspended: bool
    cancel_mode: CancelMode | None
    cancel_reason: str | None
    waiting_for: str | None
    worker: str | None
    input: str | None = None
    output: str | None = None
    error: str | None = None
    serialization: Serialization | None = None
    undoes: bool = False


@dataclass(frozen=True, slots=True)
class StepDetails:
    """One recorded step of a run. `attempts` counts failures that were followed by another attempt. `wake_at`: until
    when it waits. `input`, `output` and `error` are as in `RunDetails`."""

    index: int
    name: str
    status: StepStatus
    attempts: int
    started_at: datetime
    finished_at: datetime | None
    wake_at: datetime | None
    input: str | None = None
    output: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of a list of runs. `next`: `after` of the next page; None when there is none."""

    runs: tuple[RunDetails, ...]
    next: str | None


# -- lists


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list has; what is None lets all pass. Instants have a time zone, `_until` is exclusive.

    Raises `InvalidArgument` for values that no run can have.
    """

    ids: tuple[str, ...] | None = None
    id_prefix: str | None = None
    workflows: tuple[str, ...] | None = None
    statuses: tuple[RunStatus, ...] | None = None
    queues: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None
    parent_id: str | None = None
    forked_from: str | None = None
    partition_key: str | None = None
    attributes: str | None = None
    """A JSON object of which the run's attributes have each member."""
    created_from: datetime | None = None
    created_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None

    def __post_init__(self) -> None:
        for each in self.ids or ():
            check_text("the id of a run", each, ID_LONGEST)
        if self.ids is not None and len(self.ids) > MAX_PAGE:
            raise InvalidArgument(f"{len(self.ids)} ids in one list, at most {MAX_PAGE} are allowed")
        check_text("id_prefix", self.id_prefix, ID_LONGEST)
        check_text("parent_id", self.parent_id, ID_LONGEST)
        check_text("forked_from", self.forked_from, ID_LONGEST)
        check_text("partition_key", self.partition_key, PARTITION_KEY_MAX)
        for name, values, longest in (
            ("workflow", self.workflows, ID_MAX),
            ("queue", self.queues, NAME_MAX),
            ("pool", self.pools, NAME_MAX),
            ("version", self.versions, ID_LONGEST),
        ):
            for each in values or ():
                check_text(name, each, longest)
        for name in ("created_from", "created_until", "finished_from", "finished_until"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
                raise InvalidArgument(f"{name} is a datetime with a time zone, not {value!r}")

    @property
    def live(self) -> bool:
        """Whether runs that have not ended can be in the list."""
        return self._any(lambda status: not status.finished)

    @property
    def succeeded(self) -> bool:
        """Whether runs that have succeeded can be in the list."""
        return self._any(lambda status: status is RunStatus.SUCCEEDED)

    @property
    def others(self) -> bool:
        """Whether runs that have ended in another way can be in the list."""
        return self._any(lambda status: status > RunStatus.SUCCEEDED)

    @property
    def by_name(self) -> bool:
        """Whether the runs are named one by one, or by what they come from."""
        return self.ids is not None or self.parent_id is not None or self.forked_from is not None

    @property
    def sparse(self) -> bool:
        """Whether runs that are looked at may be left out."""
        return self != RunFilter(created_from=self.created_from, created_until=self.created_until)

    def _any(self, belongs: Callable[[RunStatus], bool]) -> bool:
        return self.statuses is None or any(belongs(status) for status in self.statuses)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the order of a list."""

    created_at: datetime
    id: str

    def text(self) -> str:
        """As callers keep it."""
        micros = (self.created_at - EARLIEST) // _MICROSECOND
        return f"{micros}:{self.id}"

    @staticmethod
    def read(text: str) -> Cursor:
        """From such a text. Raises `InvalidArgument`."""
        number, colon, run_id = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not (colon and run_id and number.isascii() and number.isdigit() and len(number) < 18):
            raise InvalidArgument(f"after is `next` of a page before, not {text!r}")
        return Cursor(EARLIEST + int(number) * _MICROSECOND, run_id)


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A page of a list. Raises `InvalidArgument`."""

    namespace: str
    filter: RunFilter = field(default_factory=RunFilter)
    limit: int = 100
    after: str | None = None
    newest_first: bool = True
    payloads: bool = False

    def __post_init__(self) -> None:
        check_limit(self.limit, payloads=self.payloads)
        if self.after is not None:
            Cursor.read(self.after)


@dataclass(frozen=True, slots=True)
class StepQuery:
    """A page of a run's steps. Raises `InvalidArgument`."""

    run_id: str
    after: int = -1
    limit: int = 100
    payloads: bool = True

    def __post_init__(self) -> None:
        check_limit(self.limit, payloads=self.payloads)
        if not isinstance(self.after, int) or isinstance(self.after, bool) or not -1 <= self.after < 2**31:
            raise InvalidArgument(f"after is the index of a step, or -1, not {self.after!r}")


@dataclass(frozen=True, slots=True)
class OneRun:
    """One run."""

    run_id: str
    payloads: bool = True


def check_limit(limit: int, *, payloads: bool) -> None:
    """Raises `InvalidArgument` unless a page can have so many."""
    most = MAX_PAGE_WITH_PAYLOADS if payloads else MAX_PAGE
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise InvalidArgument(
            f"limit must be 1 to {most}{' where payloads are asked for' if payloads else ''}, not {limit!r}"
        )


def texts_of(name: str, values: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """One text or several, as a filter has them. Raises `InvalidArgument`."""
    if values is None:
        return None
    found = (values,) if isinstance(values, str) else tuple(values)
    for each in found:
        if not isinstance(each, str):
            raise InvalidArgument(f"{name} is a text or several, not {each!r}")
    return found


class HasName(Protocol):
    """A registered workflow."""

    @property
    def name(self) -> str:
        """Under which it is registered."""
        ...


class RunFilters(TypedDict, total=False):
    """What a list of runs can be asked for; what is not said lets all pass.

    `ids`: at most a thousand. `workflow`: workflows or their names, one or several, as with `status`, `queue`, `pool`
    and `version`. `parent_id`: the run that started it. `forked_from`: the run that it was forked from. `attributes`:
    what its attributes have. Instants are datetimes with a time zone, by the database's clock; the `_until` are
    exclusive."""

    ids: Sequence[str]
    id_prefix: str
    workflow: str | HasName | Sequence[str | HasName]
    status: RunStatus | Sequence[RunStatus]
    queue: str | Sequence[str]
    pool: str | Sequence[str]
    version: str | Sequence[str]
    parent_id: str
    forked_from: str
    partition_key: str
    attributes: Mapping[str, Any]
    created_from: datetime
    created_until: datetime
    finished_from: datetime
    finished_until: datetime


def filter_of(said: RunFilters) -> RunFilter:
    """The filter that was said. Raises `InvalidArgument`, and `TypeError` for what is none."""
    unknown = said.keys() - RunFilters.__annotations__.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is no filter of runs")
    attributes = said.get("attributes")
    return RunFilter(
        ids=None if said.get("ids") is None else tuple(ids_of(said["ids"])),
        id_prefix=said.get("id_prefix"),
        workflows=_names(said.get("workflow")),
        statuses=_statuses(said.get("status")),
        queues=texts_of("queue", said.get("queue")),
        pools=texts_of("pool", said.get("pool")),
        versions=texts_of("version", said.get("version")),
        parent_id=said.get("parent_id"),
        forked_from=said.get("forked_from"),
        partition_key=said.get("partition_key"),
        attributes=None if attributes is None else attributes_text(attributes),
        created_from=said.get("created_from"),
        created_until=said.get("created_until"),
        finished_from=said.get("finished_from"),
        finished_until=said.get("finished_until"),
    )


def _names(values: str | HasName | Sequence[str | HasName] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    several = values if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    return texts_of("workflow", [each if isinstance(each, str) else each.name for each in several])


def _statuses(values: RunStatus | Sequence[RunStatus] | None) -> tuple[RunStatus, ...] | None:
    if values is None:
        return None
    several = (values,) if isinstance(values, int) else tuple(values)
    for each in several:
        if not isinstance(each, RunStatus):
            raise InvalidArgument(f"status is a RunStatus or several, not {each!r}")
    return several


Question = OneRun | StepQuery | RunQuery
"""What can be asked about runs."""
