"""Settings from the environment: what is unset, odd, out of range, or cannot be read at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.engine.registry import Registry
from perdure.errors import ConfigurationError
from perdure.worker.settings import LIMITS, TUNABLES, WorkerSettings, load, variable_of, variables
from perdure.worker.worker import Worker


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
        ("PERDURE_LEASE_SECONDS", "1e9", "lease_seconds", 3600.0),
        ("PERDURE_POLL_SECONDS", "0", "poll_seconds", 0.05),
        ("PERDURE_RUN_ATTEMPTS", "0", "run_attempts", 1),
        ("PERDURE_RUN_ATTEMPTS", "101", "run_attempts", 100),
        ("PERDURE_RETRY_BACKOFF_SECONDS", "-1", "retry_backoff_seconds", 0.0),
        ("PERDURE_RETRY_BACKOFF_SECONDS", "1e300", "retry_backoff_seconds", 3600.0),
        ("PERDURE_RETENTION_SECONDS", "-1", "retention_seconds", 0.0),
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
    for name, limit in LIMITS.items():
        assert limit.least <= getattr(settings, name) <= limit.most


def test_the_five_tunables_have_the_defaults_of_the_source_document() -> None:
    assert TUNABLES == {
        "PERDURE_POLL_SECONDS": 1,
        "PERDURE_SLOTS": 4,
        "PERDURE_LEASE_SECONDS": 30,
        "PERDURE_RUN_ATTEMPTS": 3,
        "PERDURE_RETRY_BACKOFF_SECONDS": 5,
    }
    shown = {each.name: each.default for each in variables()}
    assert {name: float(shown[name]) for name in TUNABLES} == TUNABLES


def test_a_poll_interval_that_does_not_fit_the_lease_is_moved_and_said_once() -> None:
    settings, notes = load({"PERDURE_POLL_SECONDS": "86400", "PERDURE_LEASE_SECONDS": "10"})
    assert settings.poll_seconds == 5.0
    (note,) = notes
    assert note.startswith("PERDURE_POLL_SECONDS=86400 ") and note.endswith("5 is used")


def test_a_default_that_does_not_fit_is_moved_and_said() -> None:
    settings, notes = load({"PERDURE_LEASE_SECONDS": "0.01"})
    assert (settings.lease_seconds, settings.poll_seconds) == (1.0, 0.5)
    assert [note.partition("=")[0] for note in notes] == ["PERDURE_LEASE_SECONDS", "PERDURE_POLL_SECONDS"]


def test_a_retention_in_the_wrong_unit_is_moved_to_an_hour_and_zero_keeps_everything() -> None:
    settings, notes = load({"PERDURE_RETENTION_SECONDS": "30"})
    assert settings.retention_seconds == 3600
    assert "PERDURE_RETENTION_SECONDS=30 " in notes[0]
    assert load({"PERDURE_RETENTION_SECONDS": "0"})[0].retention_seconds == 0


def test_two_servers_on_one_port_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="both 9090"):
        load({"PERDURE_PROBE_PORT": "9090"})
    assert load({"PERDURE_PROBE_PORT": "0", "PERDURE_METRICS_PORT": "0"})[0].probe_port == 0


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PERDURE_SLOT", "PERDURE_SLOTS"),
        ("PERDURE_LEASE_SECOND", "PERDURE_LEASE_SECONDS"),
        ("PERDURE_RETRY_ATTEMPTS", "PERDURE_RUN_ATTEMPTS"),
        ("PERDURE_DATABASE_PASWORD", "PERDURE_DATABASE_PASSWORD"),
        ("PERDURE_PROB_PORT", "PERDURE_PROBE_PORT"),
    ],
)
def test_a_variable_that_nobody_knows_is_said_with_the_nearest_name_and_without_its_value(
    name: str, nearest: str
) -> None:
    _, notes = load({name: "17-secret"})
    assert notes == [f"{name} is no setting and is ignored: is {nearest} meant?"]


def test_a_variable_like_no_other_is_said_as_well() -> None:
    assert load({"PERDURE_XYZZY": "1"})[1] == ["PERDURE_XYZZY is no setting and is ignored"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERDURE_PORT", "tcp://10.0.0.1:80"),
        ("PERDURE_POSTGRES_PORT", "tcp://10.0.0.1:5432"),
        ("PERDURE_SERVICE_HOST", "10.0.0.1"),
        ("PERDURE_POSTGRES_SERVICE_PORT_POSTGRES", "5432"),
        ("PERDURE_PORT_5432_TCP_ADDR", "10.0.0.1"),
        ("PERDURE_TEST_POSTGRES", "15"),
    ],
)
def test_variables_of_services_and_of_this_repository_are_let_be(name: str, value: str) -> None:
    assert load({name: value})[1] == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"slots": 0}, ["slots=0"]),
        ({"slots": 1001}, ["slots=1001"]),
        ({"slots": "4"}, ["SLOTS='4'"]),
        ({"slots": True}, ["SLOTS=True"]),
        ({"slots": 1.5}, ["SLOTS=1.5"]),
        ({"lease_seconds": float("nan")}, ["LEASE_SECONDS=nan"]),
        ({"lease_seconds": float("inf")}, ["LEASE_SECONDS=inf"]),
        ({"poll_seconds": 0.01, "run_attempts": 101, "retry_backoff_seconds": -1}, ["poll_", "run_att", "retry_b"]),
        ({"lease_seconds": 4, "poll_seconds": 3}, ["poll_seconds=3", "lease_seconds=4"]),
        ({"retention_seconds": 60}, ["retention_seconds=60"]),
        ({"metrics_port": 8080}, ["metrics_port"]),
        ({"queues": ()}, ["QUEUES"]),
        ({"bootstrap": "no function"}, ["BOOTSTRAP"]),
        ({"logs": "loud"}, ["LOGS"]),
        ({"log_level": "LOUD"}, ["LOG_LEVEL"]),
        ({"slot": 4}, ["SLOT=4"]),
    ],
)
def test_settings_built_in_code_are_refused_with_every_field_named(fields: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WorkerSettings(**fields)
    for name in named:
        assert name in caught.value.message


@pytest.mark.parametrize("changes", [{"slots": 0}, {"slots": "4"}, {"lease_seconds": float("nan")}, {"slots": True}])
def test_a_copy_with_changes_is_refused_when_it_is_looked_at(changes: dict[str, Any]) -> None:
    copy = WorkerSettings().model_copy(update=changes)
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        copy.validate_strictly()


def test_a_worker_refuses_a_copy_that_nothing_has_looked_at() -> None:
    with pytest.raises(ConfigurationError, match="slots=0"):
        Worker(WorkerSettings().model_copy(update={"slots": 0}), Registry(), database_url="")


def test_whole_seconds_are_as_good_as_fractions() -> None:
    assert WorkerSettings(lease_seconds=10, poll_seconds=1).lease_seconds == 10


def test_every_variable_says_what_it_means_and_every_number_its_range() -> None:
    for each in variables():
        assert each.meaning.endswith("."), each.name
    fields = WorkerSettings.model_fields
    numbers = {name for name, field in fields.items() if isinstance(field.default, int | float)}
    assert numbers == set(LIMITS)


@given(st.dictionaries(st.sampled_from(sorted(LIMITS)), st.floats(allow_nan=False, allow_infinity=False)))
def test_whatever_numbers_stand_in_the_environment_the_settings_pass_the_strict_check(given: dict[str, float]) -> None:
    whole = {name for name in LIMITS if isinstance(getattr(WorkerSettings(), name), int)}
    env = {variable_of(name): str(int(value) if name in whole else value) for name, value in given.items()}
    try:
        load(env)[0].validate_strictly()
    except ConfigurationError as error:
        assert "are both" in error.message  # two ports: nobody can say which one is to move


@pytest.mark.parametrize("field", ["namespace", "pool", "queues", "version", "pod_name", "pod_uid"])
@pytest.mark.parametrize("text", ["\udcff", "a\x00b", "x" * 254], ids=["not UTF-8", "NUL", "long"])
def test_a_text_that_no_row_can_hold_is_refused_before_anything_is_asked_of_the_database(field: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} (holds|has)"):
        load({variable_of(field): text})
    with pytest.raises(ConfigurationError, match=f"{field} (holds|has)"):
        WorkerSettings(**{field: text})


def test_a_queue_that_is_named_twice_is_one() -> None:
    settings, _ = load({"PERDURE_QUEUES": "urgent,default, urgent"})
    assert settings.queues == ("urgent", "default")
