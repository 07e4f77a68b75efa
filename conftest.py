"""Fixtures for every tier. Each module under tests/support starts its real part only when a test asks for it."""

import os

from hypothesis import HealthCheck, settings

# Examples are bounded by number: how long one takes says something about the machine, not about the code. In CI they
# are the same each time, so that a change is judged by what it changes; elsewhere new ones are looked for.
settings.register_profile(
    "perdure",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("perdure")

pytest_plugins = ["tests.support.postgres"]
