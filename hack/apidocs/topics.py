"""Which page has which names: by the module that defines them, so that a new name finds its page by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A page. `modules` are prefixes; the longest one that fits wins. `also`: what users meet without importing it,
    as module and name."""

    file: str
    title: str
    intro: str
    modules: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()


TOPICS = (
    Topic(
        "workflows",
        "Workflows and their starts",
        "Register a function as a workflow, and say how its runs are started.",
        ("perdure.api.workflows", "perdure.api.starts", "perdure.api.registering", "perdure.model.start"),
        also=(("perdure.api.workflows", "Workflow"),),
    ),
    Topic(
        "steps",
        "Steps",
        "Functions whose outcome is recorded, and what they may ask while they run.",
        (
            "perdure.api.steps",
            "perdure.api.inline",
            "perdure.api.sync",
            "perdure.api.transactions",
            "perdure.engine.cancellation",
            "perdure.engine.context",
        ),
        also=(("perdure.api.steps", "Step"),),
    ),
    Topic(
        "calls",
        "Durable calls",
        "What the body of a workflow does beside its steps: wait, talk, race, ask for time and chance.",
        (
            "perdure.api.calls",
            "perdure.api.streams",
            "perdure.api.determinism",
            "perdure.api.concurrency",
            "perdure.engine.pending",
            "perdure.engine.select",
        ),
    ),
    Topic(
        "other-runs",
        "Other runs, from a workflow",
        "Handles of runs in the body of a run, and what is done with runs from there.",
        ("perdure.api.handles", "perdure.api.management"),
    ),
    Topic(
        "client",
        "Clients and handles",
        "Start runs and wait for them from any program.",
        ("perdure.client", "perdure.instance"),
    ),
    Topic(
        "managing",
        "Lists, details, states",
        "What is known of runs and of their steps, and how lists are asked for.",
        ("perdure.model.listing", "perdure.model.management", "perdure.model.states"),
    ),
    Topic(
        "queues-and-schedules",
        "Queues, schedules, debounced starts",
        "Limits of queues, starts by the clock, and one start of many.",
        (
            "perdure.client.queues",
            "perdure.client.schedule",
            "perdure.client.schedules",
            "perdure.model.queues",
            "perdure.model.schedules",
            "perdure.api.schedules",
            "perdure.api.debounce",
        ),
        also=(("perdure.client.queues", "Queues"), ("perdure.client.schedules", "Schedules")),
    ),
    Topic(
        "idempotency",
        "Idempotency keys",
        "The module `perdure.idempotency`: effects that are done once, where nothing else makes them so.",
        ("perdure.idempotency",),
    ),
    Topic(
        "versions",
        "Versions of code",
        "Change a workflow while runs of it go on.",
        ("perdure.api.patching", "perdure.api.versions", "perdure.model.versions"),
    ),
    Topic(
        "serialization",
        "Serialization",
        "How values are written, by whom they can be read, and how errors travel.",
        (
            "perdure.serialization",
            "perdure.codecs",
            "perdure.api.serialization",
            "perdure.api.serializers",
            "perdure.api.failing",
            "perdure.engine.serialization",
            "perdure.engine.serializers",
            "perdure.model.serialization",
        ),
    ),
    Topic("undo", "Undo", "Take steps back when a run fails or is cancelled.", ("perdure.api.undo",)),
    Topic(
        "testing",
        "Testing",
        "The module `perdure.testing`: workflows in tests, with time that can be skipped and workers that crash.",
        ("perdure.testing",),
    ),
    Topic(
        "replay",
        "Histories and replay",
        "Recorded histories, to be run against the present code.",
        ("perdure.replay", "perdure.api.replay", "perdure.model.history"),
    ),
    Topic(
        "errors",
        "Errors",
        "What calls raise. Each code has a paragraph on [the page of errors](../errors.md).",
        ("perdure.errors",),
    ),
)


def topic_of(module: str) -> Topic | None:
    """The page for what a module defines."""
    best, longest = None, 0
    for topic in TOPICS:
        for prefix in topic.modules:
            fits = module == prefix or module.startswith(f"{prefix}.")
            if fits and len(prefix) > longest:
                best, longest = topic, len(prefix)
    return best
