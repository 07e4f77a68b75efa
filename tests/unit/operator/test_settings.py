"""Settings from the environment, and what the probes say."""

from __future__ import annotations

import pytest
from perdure.errors import ConfigurationError
from perdure_operator import probes
from perdure_operator.control.leader import lock_name
from perdure_operator.probes import Health
from perdure_operator.settings import OperatorSettings, load

BASE = {"PERDURE_OPERATOR_NAMESPACES": "a, b,"}


def test_what_is_not_set_has_a_default() -> None:
    settings = load({**BASE, "PERDURE_OPERATOR_LEASE_SECONDS": ""})
    assert settings.namespaces == ("a", "b")
    assert settings == OperatorSettings(namespaces=("a", "b"), pod_name=settings.pod_name)
    assert settings.worker_defaults.lease_seconds == 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_SECONDS", "soon"),
        ("LEASE_SECONDS", "0"),
        ("LEASE_SECONDS", "nan"),
        ("RESYNC_SECONDS", "-1"),
        ("METRICS_PORT", "70000"),
        ("WORKER_DATABASE_POOLER", "session"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"PERDURE_OPERATOR_{name}='{value}'"):
        load({**BASE, f"PERDURE_OPERATOR_{name}": value})


def test_workers_are_told_of_the_pooler() -> None:
    settings = load({**BASE, "PERDURE_OPERATOR_WORKER_DATABASE_POOLER": "Transaction"})
    assert settings.worker_defaults.database_pooler == "transaction"


def test_outside_a_pod_the_namespaces_and_the_server_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="NAMESPACES"):
        load({})
    with pytest.raises(ConfigurationError, match="KUBE_CA_FILE"):
        load({**BASE, "PERDURE_OPERATOR_KUBE_SERVER": "https://x"}).access()


def test_operators_of_the_same_namespaces_share_a_lock() -> None:
    assert lock_name(["b", "a"]) == lock_name(["a", "b", "a"])
    assert lock_name(["a"]) != lock_name(["a", "b"])


def test_alive_means_that_the_loop_and_the_work_move(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(probes.time, "monotonic", lambda: now[0])
    health, stuck = Health(), [0.0]
    health.watch("the intake", lambda: stuck[0], 100)
    assert health.alive() is None
    stuck[0] = 101
    assert health.alive() == "the intake has not moved for 101 s"
    stuck[0], now[0] = 0, probes.LOOP_SECONDS + 1
    assert "event loop" in (health.alive() or "")
    health.tick()
    assert health.alive() is None


def test_ready_means_that_there_is_something_to_work_with() -> None:
    health = Health()
    assert "schema" in (health.ready() or "")
    health.migrated = True
    assert "perdure-crds" in (health.ready() or "")
    health.served = True
    assert health.ready() is None
    assert health.startup() == "starting"
    health.started = True
    assert health.startup() is None
