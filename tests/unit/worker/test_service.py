"""Starting, stopping and failing of what runs beside others."""

import asyncio

import pytest
from perdure.worker import service
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.service import Service, backoff


class Counting(Service):
    name = "counting"

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.runs = 0
        self.settled = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise RuntimeError("one bad turn")
        self.settled.set()
        await asyncio.Event().wait()


async def test_a_service_that_fails_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(service, "backoff", lambda failures: 0.0)
    counting = Counting(failures=3)
    counting.start()
    await asyncio.wait_for(counting.settled.wait(), 10)
    assert counting.runs == 4
    await counting.stop()


async def test_stopping_twice_and_without_a_start_is_nothing() -> None:
    counting = Counting(0)
    await counting.stop()
    counting.start()
    counting.quiesce()
    await counting.settled.wait()
    await counting.stop()
    await counting.stop()


def test_backoff_grows_to_its_limit_and_spreads() -> None:
    pauses = [backoff(failures, first=1.0, longest=8.0) for failures in range(1, 2000)]
    assert 0.75 <= pauses[0] <= 1.25
    assert 1.5 <= pauses[1] <= 2.5
    assert all(6.0 <= pause <= 10.0 for pause in pauses[4:])
    assert len(set(pauses)) > 100


def test_a_lease_is_not_held_before_its_first_success_and_counts_from_the_send() -> None:
    lease = LocalLease(10.0)
    assert not lease.holds()
    lease.extend(lease_clock() - 4.0)
    assert lease.holds()
    assert 4.0 <= lease.age() < 5.0
    lease.extend(lease_clock() - 10.0)
    assert not lease.holds()
