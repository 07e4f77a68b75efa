"""Settings from the environment: what is unset, odd, out of range, or cannot be read at all."""

import pytest
from perdure.errors import ConfigurationError
from perdure.worker.settings import LIMITS, WorkerSettings, load


def test_an_empty_environment_gives_the_defaults() -> None:
    settings, notes = load({})
    assert notes == []
    assert (settings.slots, settings.lease_seconds, settings.poll_seconds) == (4, 30.0, 1.0)
    assert (settings.queues, settings.modules, settings.pod_uid) == (("default",), (), "")
    assert settings.drain_seconds < 60


def test_what_the_operator_sets_is_read() -> None:
    settings, notes = load(
        {
            "PERDURE_MODULES": "orders.flows, billing.flows,",
            "PERDURE_NAMESPACE": "shop",
            "PERDURE_POOL": "orders",
            "PERDURE_VERSION": "abc123",
            "PERDURE_QUEUES": "urgent,default",
            "PERDURE_POD_NAME": "orders-1",
            "PERDURE_POD_UID": "u-1",
            "PERDURE_SLOTS": "16",
            "PERDURE_LEASE_SECONDS": "12.5",
            "UNRELATED": "x",
        }
    )
    assert notes == []
    assert settings.modules == ("orders.flows", "billing.flows")
    assert settings.queues == ("urgent", "default")
    assert (settings.namespace, settings.pool, settings.version) == ("shop", "orders", "abc123")
    assert (settings.pod_name, settings.pod_uid, settings.slots, settings.lease_seconds) == (
        "orders-1",
        "u-1",
        16,
        12.5,
    )


def test_empty_variables_count_as_unset() -> None:
    settings, _ = load({"PERDURE_SLOTS": "", "PERDURE_QUEUES": "  "})
    assert (settings.slots, settings.queues) == (4, ("default",))


@pytest.mark.parametrize(
    ("variable", "value", "field", "used"),
    [
        ("PERDURE_SLOTS", "0", "slots", 1),
        ("PERDURE_SLOTS", "1000000", "slots", 1000),
        ("PERDURE_LEASE_SECONDS", "0.01", "lease_seconds", 1.0),
        ("PERDURE_POLL_SECONDS", "86400", "poll_seconds", 60.0),
        ("PERDURE_DRAIN_SECONDS", "-5", "drain_seconds", 0.0),
        ("PERDURE_JOURNAL_CONNECTIONS", "40", "journal_connections", 4),
    ],
)
def test_numbers_out_of_range_are_moved_and_said(variable: str, value: str, field: str, used: float) -> None:
    settings, notes = load({variable: value})
    assert getattr(settings, field) == used
    assert type(getattr(settings, field)) is type(getattr(WorkerSettings(), field))
    (note,) = notes
    assert variable in note
    assert f"{used:g} is used" in note


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PERDURE_SLOTS", "four"),
        ("PERDURE_SLOTS", "1.5"),
        ("PERDURE_LEASE_SECONDS", "nan"),
        ("PERDURE_LEASE_SECONDS", "inf"),
        ("PERDURE_QUEUES", ","),
    ],
)
def test_what_cannot_be_read_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        load({variable: value})


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load({"PERDURE_SLOTS": "x", "PERDURE_METRICS_PORT": "y"})
    assert "PERDURE_SLOTS" in caught.value.message
    assert "PERDURE_METRICS_PORT" in caught.value.message


def test_every_default_is_within_its_limits() -> None:
    settings = WorkerSettings()
    for name, (least, most) in LIMITS.items():
        assert least <= getattr(settings, name) <= most
