"""`perdure.debounce`: of many starts with one key a single run, once no further one comes.

The client has the same verb for programs outside of runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from perdure.api.handles import RunHandle
from perdure.api.starts import PreparedStart
from perdure.engine.calls.alone import build_alone_start
from perdure.engine.calls.arguments import TEXT_MAX
from perdure.engine.calls.debounce import DebouncedStart
from perdure.engine.pending import PendingStart
from perdure.engine.stored import input_of_child
from perdure.errors import InvalidArgument
from perdure.model.start import Seconds, attributes_text, check_text, positive_seconds, seconds_of
from perdure.store.clients import RunStart

R = TypeVar("R")

USABLE = frozenset({"queue", "pool", "priority", "timeout", "partition_key", "attributes", "serialization"})
"""Options of a start that a debounced one may have; the others say what the key and the delay say."""


class Times(NamedTuple):
    """The key, and seconds of delay and cap."""

    key: str
    delay: float
    cap: float | None


def debounce(
    start: PreparedStart[R], key: str, delay: Seconds, cap: Seconds | None = None
) -> PendingStart[RunHandle[R]]:
    """Start a run after `delay`, or postpone the one that an earlier call with this key has started and give it this
    input instead; its handle.

    handle = await perdure.debounce(index.prepare(document), key=document, delay=5, cap=60)

    Keys are those of one workflow and namespace. A run is postponed until it becomes claimable, then the next call
    starts another; `cap`: how long after the first call it does at the latest, whatever comes. Options are those of
    the first call. The run is no child: it is in the default queue, and in this run's pool, unless it says otherwise.
    Done once for this place of the run, however often it is recovered.

    Must be awaited on its own: it takes its place when it is awaited, and raises `PatchNondeterminism` if another call
    was built meanwhile. Raises `NotInWorkflow` outside a run (use `Client.debounce`), `InsideStep`, `InvalidArgument`.
    """
    times = check_debounce(start, key, delay, cap)
    options, definition = start.options, start.definition
    timeout = None if definition is None else definition.timeout
    text = input_of_child(start.workflow, definition, options.choice, start.arguments)
    kind: Any = DebouncedStart(
        run=RunStart(
            id="",
            workflow=start.workflow,
            input="",
            pool=options.pool or "",
            queue=options.queue or "default",
            priority=options.priority or 100,
            timeout=timeout if options.timeout is None else seconds_of(options.timeout),
            partition_key=options.partition_key or "",
            attributes=None if options.attributes is None else attributes_text(options.attributes),
            max_run_attempts=None if definition is None else definition.max_run_attempts,
            serialization=text.choice,
        ),
        input=text,
        given=start.arguments,
        said=options.said(),
        key=times.key,
        delay=times.delay,
        cap=times.cap,
        handle=lambda run_id: RunHandle(run_id, definition),
    )
    return build_alone_start(kind)


def check_debounce(start: PreparedStart[Any], key: str, delay: Seconds, cap: Seconds | None) -> Times:
    """What was said, checked. Raises `InvalidArgument`."""
    if not isinstance(start, PreparedStart):
        raise InvalidArgument("what is debounced is what `workflow.prepare(…)` gives")
    if unusable := sorted(start.options.said().keys() - USABLE):
        raise InvalidArgument(
            f"a debounced start cannot have the option {unusable[0]}: key and delay say which run it is"
        )
    if key is None:
        raise InvalidArgument("a debounced start has a key")
    check_text("key", key, TEXT_MAX)
    seconds = positive_seconds("delay", delay)
    limit = None if cap is None else positive_seconds("cap", cap)
    if limit is not None and limit < seconds:
        raise InvalidArgument(f"cap ({limit:g} s) must be at least as long as delay ({seconds:g} s)")
    return Times(key, seconds, limit)
