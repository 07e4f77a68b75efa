"""What is done for a WorkerPool, from everything observed about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.resources.workerpool_status import WorkerPoolStatus
from perdure_operator.plan.connections import OPERATOR_CONNECTIONS, WORKER_CONNECTIONS, Connections
from perdure_operator.plan.deployments import Deployment, read_deployment
from perdure_operator.plan.manifests import (
    MANIFEST_ANNOTATION,
    VERSION_LABEL,
    deployment,
    version_of,
)
from perdure_operator.plan.pods import Pod, Trouble
from perdure_operator.plan.pool import BUSY_RECHECK, IDLE_RECHECK, Observed, Plan, plan
from perdure_operator.plan.pool_status import status_of_invalid
from perdure_operator.plan.scale import Backlog

from tests.unit.operator.samples import DEFAULTS, pool, pool_object

CLOCK = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
VERSION = version_of(pool().spec)


def manifest_hash(**spec: Any) -> str:
    found: str = deployment(pool(**spec), DEFAULTS)["metadata"]["annotations"][MANIFEST_ANNOTATION]
    return found


def present(replicas: int = 1, ready: int | None = None, **changes: Any) -> Deployment:
    facts = Deployment(
        name=f"orders-{VERSION}",
        uid="d1",
        owner_uid="pool-uid",
        version=VERSION,
        manifest=manifest_hash(),
        replicas=replicas,
        pods=replicas,
        ready=replicas if ready is None else ready,
        trouble=None,
    )
    return replace(facts, **changes)


def earlier(replicas: int = 2, **changes: Any) -> Deployment:
    return present(replicas, name="orders-0ld", uid="d0", version="0ld", manifest="x", **changes)


def decide(
    *deployments: Deployment,
    backlog: Mapping[str | None, Backlog] | None = {},  # never changed
    pods: list[Pod] | None = None,
    unknown_for: float = 0.0,
    refused: str | None = None,
    status: dict[str, Any] | None = None,
    connections: Connections | None = None,
    **spec: Any,
) -> Plan:
    return plan(
        Observed(
            pool=pool(status=status, **spec),
            deployments=deployments,
            pods=pods or [],
            backlog=backlog,
            now=1000.0,
            clock=CLOCK,
            unknown_for=unknown_for,
            refused=refused,
            connections=connections,
        ),
        DEFAULTS,
    )


def conditions(decided: Plan) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in decided.status["conditions"]}


def failing(version: str = VERSION) -> Pod:
    trouble = Trouble("ImagePullBackOff", "container app: no such image")
    return Pod("p", "u", "orders", version, ready=False, leaving=False, worker_ended=False, trouble=trouble)


def test_a_new_pool_gets_its_deployment_with_as_many_pods_as_are_wanted_at_once() -> None:
    decided = decide(backlog={None: Backlog(ready=9)})
    assert decided.apply is not None
    assert decided.initial == 3
    assert decided.scale == ()
    assert conditions(decided)["Ready"] == ("False", "WaitingForWorkers")


def test_a_pool_with_nothing_to_do_has_no_pods_and_is_ready() -> None:
    decided = decide(present(0))
    assert (decided.apply, decided.retire, decided.scale, decided.delete) == (None, None, (), ())
    assert conditions(decided) == {"Ready": ("True", "ScaledToZero"), "Stalled": ("False", "Progressing")}
    assert decided.recheck == IDLE_RECHECK


def test_runs_without_a_version_count_for_the_present_one() -> None:
    decided = decide(present(0), backlog={None: Backlog(ready=5), VERSION: Backlog(running=4)})
    assert [(change.name, change.replicas) for change in decided.scale] == [(f"orders-{VERSION}", 3)]
    assert decided.recheck == BUSY_RECHECK


def test_a_manifest_that_has_changed_is_applied_again() -> None:
    assert decide(present(1, manifest="older")).apply is not None
    assert decide(present(1), slots=9).apply is not None
    assert decide(present(1)).apply is None


def test_an_earlier_version_stays_for_its_runs_and_goes_with_the_last() -> None:
    held = decide(present(1), earlier(2), backlog={"0ld": Backlog(running=1, asleep=3)})
    assert held.delete == ()
    assert held.retire == VERSION
    assert [(change.name, change.replicas) for change in held.scale if change.name == "orders-0ld"] == [
        ("orders-0ld", 1)
    ]
    asleep = decide(present(1), earlier(1), backlog={"0ld": Backlog(asleep=3)})
    assert [(change.name, change.replicas) for change in asleep.scale if change.name == "orders-0ld"] == [
        ("orders-0ld", 0)
    ]
    woken = decide(present(1), earlier(0), backlog={"0ld": Backlog(ready=1, asleep=2)})
    assert ("orders-0ld", 1) in [(change.name, change.replicas) for change in woken.scale]
    assert [old.name for old in decide(present(1), earlier(2)).delete] == ["orders-0ld"]


def test_a_broken_template_takes_nothing_down() -> None:
    starting = decide(present(1, ready=0), earlier(2), backlog={None: Backlog(ready=1)}, pods=[failing()])
    assert starting.delete == ()
    assert starting.retire is None, "the earlier version still takes new runs"
    assert starting.scale == ()
    assert conditions(starting) == {"Ready": ("False", "PodsFailing"), "Stalled": ("True", "PodsFailing")}
    assert "no such image" in starting.status["conditions"][0]["message"]


def test_nothing_goes_down_or_away_on_what_is_not_known() -> None:
    decided = decide(present(3), earlier(2), backlog=None)
    assert (decided.scale, decided.delete) == ((), ())
    assert "backlog" not in decided.status
    assert conditions(decided)["Ready"] == ("True", "WorkersReady")
    after_a_while = decide(present(3), earlier(2), backlog=None, unknown_for=11)
    assert (after_a_while.scale, after_a_while.delete) == ((), ())
    assert conditions(after_a_while)["Ready"] == ("Unknown", "DatabaseUnreachable")


def test_a_suspended_pool_has_no_pods_of_any_version_and_keeps_what_runs_belong_to() -> None:
    backlog = {"0ld": Backlog(running=1), VERSION: Backlog(running=4)}
    decided = decide(present(2), earlier(1), backlog=backlog, suspend=True)
    assert {(change.name, change.replicas) for change in decided.scale} == {
        (f"orders-{VERSION}", 0),
        ("orders-0ld", 0),
    }
    assert decided.delete == ()
    assert conditions(decided)["Ready"] == ("False", "PoolSuspended")
    assert decide(present(2), backlog=None, suspend=True).scale[0].replicas == 0, "asked for by a person"


def test_a_person_sets_the_number() -> None:
    decided = decide(present(1), replicas=4, backlog={None: Backlog(ready=1000)})
    assert decided.scale[0].replicas == 4
    assert "spec.replicas asks for 4" in decided.status["message"]


def test_a_refused_template_is_said_and_tried_again() -> None:
    decided = decide(refused="the API server refuses", backlog={None: Backlog(ready=1)})
    assert decided.apply is not None
    assert conditions(decided) == {"Ready": ("False", "TemplateRefused"), "Stalled": ("True", "TemplateRefused")}


def test_a_controller_that_cannot_make_pods_is_said() -> None:
    trouble = Trouble("FailedCreate", "exceeded quota")
    decided = decide(present(2, ready=0, trouble=trouble), backlog={VERSION: Backlog(ready=8)})
    assert conditions(decided)["Stalled"] == ("True", "PodsFailing")
    assert "exceeded quota" in decided.status["conditions"][1]["message"]


def test_the_status_fits_its_schema_and_repeats_itself() -> None:
    backlog = {VERSION: Backlog(ready=2, running=4), "0ld": Backlog(running=1), None: Backlog(ready=1)}
    first = decide(present(2), earlier(1), backlog=backlog).status
    WorkerPoolStatus.model_validate(first)
    assert first["versions"][0]["name"] == VERSION
    assert (first["replicas"], first["readyReplicas"], first["backlog"]) == (3, 3, 3)
    assert first["selector"] == "perdure.dev/pool=orders"
    again = decide(present(2), earlier(1), backlog=backlog, status=first).status
    assert again == first


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    earlier_status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    kept = decide(present(0), status=earlier_status).status["conditions"]
    assert [each["lastTransitionTime"] for each in kept] == ["2026-01-01T00:00:00Z", "2026-12-01T12:00:00Z"]
    changed = decide(present(0), status=earlier_status, suspend=True).status["conditions"]
    assert changed[0]["lastTransitionTime"] == "2026-12-01T12:00:00Z"


def test_a_pool_whose_spec_is_not_valid_keeps_what_it_has() -> None:
    stored = decide(present(2)).status
    status = status_of_invalid(pool_object(status=stored), "spec.slots: must be at least 1", CLOCK)
    WorkerPoolStatus.model_validate(status)
    assert status["replicas"] == 2
    assert [each["reason"] for each in status["conditions"]] == ["InvalidSpec", "InvalidSpec"]


def test_a_deployment_is_read_with_what_is_missing() -> None:
    bare = read_deployment({"metadata": {"name": "d", "labels": {VERSION_LABEL: "v"}}})
    assert (bare.replicas, bare.pods, bare.ready, bare.owner_uid, bare.trouble) == (1, 0, 0, "", None)
    assert read_deployment({"spec": {"replicas": 0}}).replicas == 0


backlogs = st.builds(Backlog, ready=st.integers(0, 50), running=st.integers(0, 50), asleep=st.integers(0, 50))


@given(
    st.none() | st.dictionaries(st.sampled_from([None, VERSION, "0ld"]), backlogs),
    st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(0, 5),
    st.booleans(),
    st.none() | st.integers(0, 8),
)
def test_for_anything_observed(
    backlog: Mapping[str | None, Backlog] | None,
    now: tuple[int, int] | None,
    old: int,
    suspend: bool,
    fixed: int | None,
) -> None:
    deployments = [earlier(old)] if now is None else [present(now[0], min(now)), earlier(old)]
    spec: dict[str, Any] = {"suspend": suspend} | ({} if fixed is None else {"replicas": fixed})
    decided = plan(
        Observed(pool(**spec), deployments, [], backlog, now=1000.0, clock=CLOCK),
        DEFAULTS,
    )
    WorkerPoolStatus.model_validate(decided.status)
    if backlog is None:
        assert decided.delete == ()
        if not suspend:
            assert all(change.replicas >= change.before for change in decided.scale if fixed is None)
    elif backlog.get("0ld", Backlog()).open:
        assert decided.delete == (), "runs belong to it"
    names = [change.name for change in decided.scale]
    assert len(names) == len(set(names))
    assert all(change.replicas != change.before for change in decided.scale)


@pytest.mark.parametrize(("most", "expected"), [(77, "EnoughConnections"), (76, "TooFewConnections")])
def test_pods_of_all_pools_are_counted_against_what_postgres_lets_in(most: int, expected: str) -> None:
    wanted = decide(present(3), backlog={None: Backlog(ready=9)}, connections=Connections(most, other_pods=3))
    assert conditions(wanted)["ConnectionsSuffice"] == (str(most > 76), expected)
    assert (
        f"up to {6 * WORKER_CONNECTIONS + OPERATOR_CONNECTIONS} connections"
        in wanted.status["conditions"][2]["message"]
    )
    assert "ConnectionsSuffice" not in conditions(decide(present(3)))
