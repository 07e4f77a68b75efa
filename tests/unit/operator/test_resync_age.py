"""How old the last good comparison is: what the alert on an operator that does not reconcile looks at."""

import inspect
from typing import Any, cast

import pytest
from perdure_operator.control import resync


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(resync, "time", clock)
    return clock


def test_tries_that_fail_do_not_make_it_young(clock: Clock) -> None:
    # Its collaborators are not asked for anything here.
    found = resync.Resync(**dict.fromkeys(inspect.signature(resync.Resync).parameters, cast(Any, None)))
    clock.now += 1000
    found.tried_at = clock.now  # as each try does, before it fails
    assert found.silent_for == 0
    assert found.age == 1000
    found.done_at = clock.now
    clock.now += 5
    assert found.age == 5
