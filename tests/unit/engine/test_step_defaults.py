"""What holds for a step that says nothing, and how waits between attempts grow: the numbers that people rely on."""

import pytest
from perdure import step
from perdure.engine.registry import Registry, StepOptions
from perdure.model.retry import RetryPolicy

HOUR = 3600.0


def test_a_step_that_says_nothing_has_the_defaults_of_the_guide() -> None:
    @step(registry=Registry())
    def decorated() -> None: ...

    options = decorated.definition.options
    assert options == StepOptions()
    assert (options.max_attempts, options.interval, options.backoff_rate, options.max_interval) == (1, 1.0, 2.0, HOUR)
    assert (options.timeout, options.preemptible, options.should_retry) == (None, False, None)


def test_the_wait_grows_by_its_rate_up_to_the_longest() -> None:
    policy = RetryPolicy(max_attempts=15)
    waits = [policy.delay_after(failures) for failures in range(1, 15)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, HOUR, HOUR]


@pytest.mark.parametrize(("attempts", "failures"), [(1, 1), (0, 1), (3, 3), (3, 4)])
def test_after_the_last_attempt_nothing_is_waited_for(attempts: int, failures: int) -> None:
    assert RetryPolicy(max_attempts=attempts).delay_after(failures) is None


def test_a_wait_beyond_all_numbers_is_the_longest() -> None:
    assert RetryPolicy(max_attempts=10_000, backoff_rate=1e300).delay_after(9_999) == HOUR
