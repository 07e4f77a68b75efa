"""Fixtures for every tier. Each module under tests/support starts its real part only when a test asks for it."""

pytest_plugins = ["tests.support.postgres"]
