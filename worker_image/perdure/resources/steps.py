"""Declared steps: the models of `spec.steps`, the order they run in, and what is wrong with an order.

Used by `workflow` (the spec), by acceptance, and by whoever executes a stored definition. A step has one action;
`Step.action` is a union that grows with the kinds of actions, so that a `match` on it finds what it forgot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from perdure.model.retry import RetryPolicy
from perdure.resources.common import (
    LABEL_MAX,
    REGISTERED_NAME_MAX,
    UNIQUE,
    Duration,
    Kube,
    Model,
    PositiveDuration,
    parse_duration,
)
from perdure.resources.markers import literal_values, rule, unique

MAX_STEPS = 100
"""Longest inline definition: the whole object is read and written again at every status write of its run."""

MAX_NEEDS = 20
"""Most steps that one step waits for by name; bounds the rule that looks them up."""

MAX_ARGUMENTS = 64
"""Most named arguments of a step: far above any readable call."""

LITERAL_DEPTH = 2
"""How deep below an argument the API server looks for `${`, `{{` and a leading `=`; acceptance looks deeper."""

STEP_NAME_PATTERN = "^[a-z][A-Za-z0-9_]*$"
STEP_NAME_MESSAGE = (
    "a step name starts with a lower-case letter and has letters, digits and _ (a dash would be a minus in expressions)"
)
FACTOR_PATTERN = "^([1-9][0-9]?([.][0-9]{1,3})?|100)$"
FACTOR_MESSAGE = 'a factor is a whole number, or a decimal in quotes, from 1 to 100: 2 or "1.5"'
FACTOR_RULE = f"type(self) == int ? self >= 1 && self <= 100 : self.matches('{FACTOR_PATTERN}')"

LITERAL_PATTERN = (
    r"^(?<literal_text_only_expressions_are_not_supported_yet>"
    r"((\{?\$*[^=${]|(\{\$*|\$+)=)(\{?\$*[^${])*)?\{?\$*)$"
)
"""Text without a leading `=` and without `${` and `{{`. The group's name is for the person who reads the refusal:
the API server prints the pattern and has no other words for a value of a free form."""


def _step_name(text: str) -> str:
    if not re.fullmatch(STEP_NAME_PATTERN[1:-1], text):
        raise ValueError(STEP_NAME_MESSAGE)
    return text


def _factor(value: int | str) -> int | str:
    if not re.fullmatch(FACTOR_PATTERN[1:-1], str(value)):
        raise ValueError(FACTOR_MESSAGE)
    return value


StepName = Annotated[str, Field(min_length=1, max_length=LABEL_MAX), AfterValidator(_step_name)]

RegisteredName = Annotated[str, Field(min_length=1, max_length=REGISTERED_NAME_MAX, pattern="^[!-~]+$")]
"""Name under which Python code registers a workflow or a step: printable ASCII without spaces."""


class Backoff(Model):
    """Waits between attempts: the first is `initial`, each next one `factor` times longer, none over `max`.

    What is absent stays absent in the stored object and is the engine's default. A default in the schema would be
    written into the list of steps, and `kubectl apply` of an unchanged file would say `configured` for ever.
    """

    initial: Duration | None = Field(default=None, description="Wait after the first failed attempt. Absent: 1s.")
    factor: (
        Annotated[
            int | str,
            AfterValidator(_factor),
            Kube({"x-kubernetes-int-or-string": True, "maxLength": 6}, rule(FACTOR_RULE, FACTOR_MESSAGE)),
        ]
        | None
    ) = Field(
        default=None,
        description='How much longer each wait is than the last, 1 to 100; decimals in quotes: "1.5". Absent: 2.',
    )
    max: Duration | None = Field(default=None, description="Longest wait between two attempts. Absent: 1h.")


class Retry(Model):
    """How often a step is tried. Takes the place of the retry options that the registered step has."""

    max_attempts: int = Field(
        ge=1,
        le=1000,
        description="Attempts in all, the first included: 1 means no retry. An attempt cut off because its worker "
        "died is not counted.",
    )
    backoff: Backoff | None = Field(
        default=None,
        description="Waits between attempts. During a longer wait the run holds no slot of a worker. Absent: 1s, then "
        "twice as long each time, up to 1h.",
    )

    def policy(self) -> RetryPolicy:
        """The same in the engine's terms."""
        policy, backoff = RetryPolicy(max_attempts=self.max_attempts), self.backoff or Backoff()
        return replace(
            policy,
            interval=policy.interval if backoff.initial is None else parse_duration(backoff.initial).total_seconds(),
            backoff_rate=policy.backoff_rate if backoff.factor is None else float(backoff.factor),
            max_interval=policy.max_interval if backoff.max is None else parse_duration(backoff.max).total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class TaskAction:
    """Call a registered step function with these arguments, on a worker."""

    name: str
    arguments: Mapping[str, Any]


StepAction = TaskAction
"""What a step does: a union that grows. Match on it and end with `assert_never`."""


class Step(Model):
    """One declared step. It runs after the step above it, unless `needs` says otherwise."""

    name: Annotated[StepName, Kube(rule(f"self.matches('{STEP_NAME_PATTERN}')", STEP_NAME_MESSAGE))] = Field(
        description="Name of the step, unique in this list: a lower-case letter, then letters, digits and _. "
        "It is the step's identity in the recorded history.",
    )
    task: RegisteredName = Field(
        description="Registered name of the step function to call. A name that no worker of the pool knows is not "
        "an error: the run waits, and its status names it.",
    )
    arguments: Annotated[
        dict[str, Any],
        Field(max_length=MAX_ARGUMENTS),
        Kube({"additionalProperties": literal_values(LITERAL_PATTERN, LITERAL_DEPTH)}),
    ] = Field(
        default_factory=dict,
        alias="with",
        description="Arguments of the call by name, any JSON values, taken literally. Text that starts with = or "
        "holds ${ or {{ is refused: expressions are not supported yet.",
    )
    needs: Annotated[list[StepName], Field(max_length=MAX_NEEDS), UNIQUE, Kube(unique())] | None = Field(
        default=None,
        description="Names of steps that must have succeeded before this one starts. Absent: the step above. "
        "Empty list: none, it starts at once.",
    )
    retry: Retry | None = Field(
        default=None, description="How often to try. Absent: as the registered step function says, once by default."
    )
    attempt_timeout: PositiveDuration | None = Field(
        default=None,
        description="Longest time that one attempt may take; then it is stopped and counts as failed. A function "
        "that is not async cannot be stopped: its result is dropped. Absent: no limit.",
    )

    @property
    def action(self) -> StepAction:
        """The one thing this step does."""
        return TaskAction(name=self.task, arguments=self.arguments)


UNIQUE_NAMES = "[self.map(s, s.name)].all(names, names.all(n, names.exists_one(m, m == n)))"
UNIQUE_MESSAGE = "two steps have the same name"
KNOWN_NEEDS = "[self.map(s, s.name)].all(names, self.all(s, !has(s.needs) || s.needs.all(n, n in names)))"
KNOWN_NEEDS_MESSAGE = "needs names a step that is not in this list"
KNOWN_NEEDS_SAYS = (
    f"'{KNOWN_NEEDS_MESSAGE}: see the needs of %s'.format(["
    "self.filter(s, has(s.needs) && !s.needs.all(n, self.exists(t, t.name == n))).map(s, s.name)])"
)
NO_SELF_NEED = "self.all(s, !has(s.needs) || !(s.name in s.needs))"
SELF_NEED_MESSAGE = "a step cannot need itself"


def effective_needs(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """For each step the steps that it waits for, the one above included where `needs` is absent."""
    found: dict[str, tuple[str, ...]] = {}
    above: tuple[str, ...] = ()
    for step in steps:
        found[step.name] = above if step.needs is None else tuple(step.needs)
        above = (step.name,)
    return found


def duplicate_names(steps: Sequence[Step]) -> list[str]:
    """Names that more than one step has, in the order of the list."""
    seen: set[str] = set()
    again: dict[str, None] = {}
    for step in steps:
        if step.name in seen:
            again[step.name] = None
        seen.add(step.name)
    return list(again)


def unknown_needs(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Pairs of a step and a name in its `needs` that no step has."""
    names = {step.name for step in steps}
    return [(step.name, need) for step in steps for need in step.needs or () if need not in names]


def find_cycle(steps: Sequence[Step]) -> list[str]:
    """Names of steps that wait for each other in a circle, first one repeated at the end; empty if there is none.

    Walks without recursion: the depth is the length of the list, which a stored definition does not bound.
    """
    needs = effective_needs(steps)
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        on_path: set[str] = set()
        todo = [(start, False)]
        while todo:
            name, leaving = todo.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(name)
            elif name in on_path:
                return [*path[path.index(name) :], name]
            elif name not in done and name in needs:
                path.append(name)
                on_path.add(name)
                todo.append((name, True))
                todo.extend((need, False) for need in reversed(needs[name]))
    return []
