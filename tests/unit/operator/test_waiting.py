"""Why a ready run is not taken: a stable word, and a sentence that says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.model.queues import QueueLimits, RateLimit, ReachedLimits
from perdure.model.rows import WaitingFor
from perdure.resources.conditions import WaitKind
from perdure_operator.plan.names import MAX_LISTED, did_you_mean, listed
from perdure_operator.plan.pods import Trouble
from perdure_operator.plan.waiting import PoolFacts, Unclaimed, Worker, differs, waiting_for

RUN = Unclaimed("shop", "orders", "default", ("workflow:shop.order",), None, suspended=False)
WORKER = Worker("v2", frozenset({"workflow:shop.order", "step:shop.pay"}), frozenset({"default"}), 4, accepts=True)
POOL = PoolFacts("orders", ("default",), suspended=False, version="v2", max_replicas=3, workers=(WORKER,))
NO_WORKER = replace(POOL, workers=())
CRASH = Trouble("CrashLoopBackOff", "container app ends again and again: exit code 1")


@pytest.mark.parametrize(
    ("run", "pool", "kind", "name", "says"),
    [
        (replace(RUN, suspended=True), None, WaitKind.SUSPENDED, "", "spec.suspend"),
        (RUN, None, WaitKind.NO_WORKER_POOL, "orders", "did you mean order?"),
        (replace(RUN, queue="fast"), POOL, WaitKind.NO_WORKER_POOL, "fast", "it serves default"),
        (RUN, replace(POOL, suspended=True), WaitKind.POOL_SUSPENDED, "orders", "spec.suspend of WorkerPool orders"),
        (RUN, NO_WORKER, WaitKind.POOL_STARTING, "orders", "is starting"),
        (RUN, replace(NO_WORKER, trouble=CRASH), WaitKind.POOL_NOT_READY, "orders", "exit code 1"),
        (RUN, replace(NO_WORKER, max_replicas=0), WaitKind.POOL_NOT_READY, "orders", "raise its spec.replicas"),
        (
            replace(RUN, version="v1"),
            replace(POOL, versions=frozenset({"v1"})),
            WaitKind.POOL_STARTING,
            "orders",
            "of version v1",
        ),
        (replace(RUN, version="v1"), POOL, WaitKind.NO_WORKER_VERSION, "v1", "not there any more"),
        (replace(RUN, version="v2"), NO_WORKER, WaitKind.POOL_STARTING, "orders", "of version v2"),
        (replace(RUN, requires=("workflow:shop.odrer",)), POOL, WaitKind.UNKNOWN_WORKFLOW, "shop.odrer", "shop.order?"),
        (replace(RUN, requires=("step:shop.bay",)), POOL, WaitKind.UNKNOWN_STEP, "shop.bay", "shop.pay?"),
        (RUN, replace(POOL, running={"v2": 4}), WaitKind.NO_FREE_SLOT, "orders", "at most 3 pods"),
        (RUN, replace(POOL, running={"v1": 40, "v2": 3}), WaitKind.FREE_WORKER, "orders", "takes it"),
        (RUN, POOL, WaitKind.FREE_WORKER, "orders", "takes it"),
        (RUN, replace(POOL, workers=(replace(WORKER, retired=True),)), WaitKind.POOL_STARTING, "orders", "starting"),
        (
            replace(RUN, version="v2"),
            replace(POOL, workers=(replace(WORKER, retired=True),)),
            WaitKind.FREE_WORKER,
            "orders",
            "takes it",
        ),
        (RUN, replace(POOL, workers=(replace(WORKER, accepts=False),)), WaitKind.POOL_STARTING, "orders", "starting"),
    ],
)
def test_reasons(run: Unclaimed, pool: PoolFacts | None, kind: str, name: str, says: str) -> None:
    found = waiting_for(run, pool, ["order", "mails"])
    assert (found.kind, found.name) == (kind, name)
    assert says in found.message
    assert found.until is None


def test_one_worker_must_know_everything() -> None:
    run = replace(RUN, requires=("step:a", "step:b", "workflow:w"))
    first = replace(WORKER, manifest=frozenset({"step:a", "workflow:w"}))
    second = replace(WORKER, manifest=frozenset({"step:b"}))
    found = waiting_for(run, replace(POOL, workers=(first, second)), ["orders"])
    assert (found.kind, found.name) == (WaitKind.UNKNOWN_STEP, "b")


A, B = WaitingFor("FreeWorker", "p", "one"), WaitingFor("NoFreeSlot", "p", "two")


@pytest.mark.parametrize(
    ("stored", "found", "written"),
    [
        (None, A, True),
        (A, A, False),
        (A, B, False),
        (B, A, False),
        (A, replace(A, message="another"), True),
        (A, WaitingFor("NoWorkerPool", "p", "x"), True),
        (WaitingFor("NoWorkerPool", "p", "x"), A, True),
    ],
)
def test_a_reason_is_written_when_it_says_something_new(
    stored: WaitingFor | None, found: WaitingFor, written: bool
) -> None:
    assert differs(stored, found) is written


def test_names_are_listed_in_one_order_and_not_endlessly() -> None:
    assert listed(["b", "a", "b"]) == "a, b"
    assert listed([]) == "none"
    assert listed([f"n{i:02}" for i in range(MAX_LISTED + 3)]).endswith("n11 and 3 more")


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("shop.odrer", "shop.order"),
        ("order", "shop.order"),
        ("Order", "shop.order"),
        ("something", ""),
        ("shop.order", "shop.order"),
    ],
)
def test_did_you_mean(name: str, guess: str) -> None:
    assert did_you_mean(name, ["shop.order", "shop.mail"]) == (f" (did you mean {guess}?)" if guess else "")


names = st.sampled_from(["workflow:a", "workflow:b", "step:c", "step:d"])


@given(
    st.builds(
        Unclaimed,
        namespace=st.just("shop"),
        pool=st.just("orders"),
        queue=st.sampled_from(["default", "fast"]),
        requires=st.lists(names, min_size=1, max_size=3).map(tuple),
        version=st.sampled_from([None, "v1", "v2"]),
        suspended=st.booleans(),
    ),
    st.none()
    | st.builds(
        PoolFacts,
        name=st.just("orders"),
        queues=st.sampled_from([("default",), ("default", "fast")]),
        suspended=st.booleans(),
        version=st.just("v2"),
        trouble=st.sampled_from([None, CRASH]),
        max_replicas=st.integers(0, 2),
        workers=st.lists(
            st.builds(
                Worker,
                version=st.sampled_from(["v1", "v2"]),
                manifest=st.frozensets(names),
                queues=st.just(frozenset({"default"})),
                slots=st.integers(1, 2),
                accepts=st.booleans(),
            ),
            max_size=3,
        ).map(tuple),
        running=st.dictionaries(st.sampled_from(["v1", "v2"]), st.integers(0, 4)),
    ),
)
def test_there_is_always_an_answer_with_a_known_word_and_a_sentence(run: Unclaimed, pool: PoolFacts | None) -> None:
    found = waiting_for(run, pool, [] if pool is None else ["orders"])
    assert found.kind in set(WaitKind)
    assert 10 < len(found.message) < 1000
    assert found == waiting_for(run, pool, [] if pool is None else ["orders"])


def test_sentences_have_no_numbers_that_change_by_themselves() -> None:
    busy: dict[str, Any] = {"running": {"v2": 7}}
    assert waiting_for(RUN, replace(POOL, running={"v2": 4}), []) == waiting_for(RUN, replace(POOL, **busy), [])


def limited(*, paused: bool = False, reached: dict[str, Any] | None = None, **limits: Any) -> ReachedLimits:
    return ReachedLimits("default", QueueLimits(**limits), paused, **(reached or {}))


FULL = limited(concurrency=3, reached={"full": True})
OF_PARTITIONS = limited(partition_concurrency=1, reached={"full_partitions": frozenset({"acme"})})
OF_WORKERS = limited(worker_concurrency=2, reached={"full_workers": frozenset({"w1", "w9"})})
SPENT = limited(rate=RateLimit(100, 60), reached={"spent": True})
OF_QUEUES = {WaitKind.QUEUE_PAUSED, WaitKind.QUEUE_LIMIT, WaitKind.RATE_LIMIT}
NAMED = replace(POOL, workers=(replace(WORKER, id="w1"),))


@pytest.mark.parametrize(
    ("queue", "run", "pool", "kind", "says"),
    [
        (limited(paused=True), RUN, POOL, WaitKind.QUEUE_PAUSED, 'client.queues.resume("default")'),
        (limited(paused=True), RUN, NO_WORKER, WaitKind.QUEUE_PAUSED, "queue default is paused"),
        (limited(paused=True), RUN, None, WaitKind.NO_WORKER_POOL, "orders"),
        (FULL, RUN, POOL, WaitKind.QUEUE_LIMIT, "it lets 3 runs at once run"),
        (FULL, RUN, replace(POOL, running={"v2": 4}), WaitKind.QUEUE_LIMIT, "is at its limit"),
        (FULL, RUN, NO_WORKER, WaitKind.POOL_STARTING, "is starting"),
        (limited(concurrency=3), RUN, POOL, WaitKind.FREE_WORKER, "takes it"),
        (OF_PARTITIONS, replace(RUN, partition_key="acme"), POOL, WaitKind.QUEUE_LIMIT, "1 run of partition acme at"),
        (OF_PARTITIONS, replace(RUN, partition_key="other"), POOL, WaitKind.FREE_WORKER, "takes it"),
        (OF_WORKERS, RUN, NAMED, WaitKind.QUEUE_LIMIT, "2 runs of each worker at once"),
        (OF_WORKERS, RUN, POOL, WaitKind.FREE_WORKER, "takes it"),
        (SPENT, RUN, POOL, WaitKind.RATE_LIMIT, "lets 100 runs begin in 60 s"),
        (SPENT, replace(RUN, version="v2"), POOL, WaitKind.FREE_WORKER, "takes it"),
    ],
)
def test_limits_of_the_queue_are_named(
    queue: ReachedLimits, run: Unclaimed, pool: PoolFacts | None, kind: str, says: str
) -> None:
    found = waiting_for(run, pool, ["mails"], queue)
    assert (found.kind, says in found.message) == (kind, True), found
    assert found.name == ("default" if found.kind in OF_QUEUES else "orders")


@pytest.mark.parametrize("queue", [FULL, SPENT])
def test_a_limit_stays_the_reason_while_a_place_is_free_for_a_moment(queue: ReachedLimits) -> None:
    stored = waiting_for(RUN, POOL, [], queue)
    moment = waiting_for(RUN, POOL, [], replace(queue, full=False, spent=False))
    assert moment.kind == WaitKind.FREE_WORKER
    assert not differs(stored, moment, queue)
    assert differs(moment, stored, queue)
    assert differs(stored, moment, None), "the limits were taken off"
    assert differs(stored, moment, limited(concurrency=99)), "the limits have changed"
    paused = waiting_for(RUN, POOL, [], replace(queue, paused=True))
    assert differs(stored, paused, queue)
    assert differs(paused, moment, queue), "it was resumed"
