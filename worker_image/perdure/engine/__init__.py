"""Durable execution of one run: registry, step calls, replay, outcome. No database: it talks to a `StepLog`."""
