"""PURE. The history of a run as a file: what a replay needs of it, whoever replays it and whenever.

Made by `store.exports` from the rows of a run and by `RunHistory.from_json` from a file; read by `perdure.replay`.
Promises: what was written by an earlier release can be read for ever; a file of a later format is refused by its number
and not half understood. Values stand in it as JSON, so that people can read them and a version control system can show
what changed; a text that is none stands in it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from perdure.errors import HistoryUnreadable
from perdure.model.rows import RecordedStep
from perdure.model.serialization import Serialization
from perdure.model.states import RunStatus, StepStatus

FORMAT = "perdure-history"

FORMAT_VERSION = 1
"""Rises when a reader that does not know of a change would understand the file wrongly. What is only added and may be
ignored raises nothing."""

TEXT = "_text"
"""End of the key of a value that is no plain JSON: serializers and codecs write what they like."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run and its recorded steps, as they stood when they were read.

    `input`, `output`, `error` and `definition` are texts as they are stored, mostly JSON. `version`: that of the
    workers which ran it. `release`: the Perdure that has written this. `seed`: what chance in its body goes by instead
    of its id. `rewinds`: how often it was rewound. `serialization`: what was chosen for its values.
    """

    id: str
    namespace: str
    workflow: str
    status: RunStatus
    input: str
    steps: tuple[RecordedStep, ...] = ()
    name: str | None = None
    version: str | None = None
    definition: str | None = None
    output: str | None = None
    error: str | None = None
    parent_id: str | None = None
    rewinds: int = 0
    seed: str | None = None
    serialization: Serialization | None = None
    release: str = ""

    def to_json(self) -> str:
        """The text of a file: JSON, indented, with a line end."""
        run: dict[str, Any] = {
            "id": self.id,
            "namespace": self.namespace,
            "workflow": self.workflow,
            "status": self.status.name,
            **_said(name=self.name, version=self.version, parent_id=self.parent_id, seed=self.seed),
            **({"rewinds": self.rewinds} if self.rewinds else {}),
            **_said(serialization=self.serialization),
            **_payload("definition", self.definition),
            **_payload("input", self.input),
            **_payload("output", self.output),
            **_payload("error", self.error),
        }
        whole = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "perdure": self.release,
            "run": run,
            "steps": [_step(step) for step in self.steps],
        }
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunHistory:
        """From such a text. Raises `HistoryUnreadable`, which says what does not fit."""
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise HistoryUnreadable(f"it is no JSON: {error}") from None
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise HistoryUnreadable(f"it is no history of a run: there is no `format` that says {FORMAT}")
        version = whole.get("format_version")
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise HistoryUnreadable(
                f"it has version {json.dumps(version)[:40]} of the format, and this release reads version "
                f"{FORMAT_VERSION}: it was written by Perdure {_shown(whole.get('perdure'))}"
            )
        run = _of(whole, "run", dict, "the file")
        steps = tuple(
            _recorded(each, f"steps[{number}]") for number, each in enumerate(_of(whole, "steps", list, "the file"))
        )
        for before, step in pairwise(steps):
            if before.index >= step.index:
                raise HistoryUnreadable(f"its steps are not in order: index {step.index} follows {before.index}")
        given = _text_of(run, "input")
        if given is None:
            raise HistoryUnreadable("run has no input")
        return cls(
            id=_of(run, "id", str, "run"),
            namespace=_of(run, "namespace", str, "run"),
            workflow=_of(run, "workflow", str, "run"),
            status=_status(run, RunStatus, "run"),
            input=given,
            steps=steps,
            name=_maybe(run, "name", str, "run"),
            version=_maybe(run, "version", str, "run"),
            definition=_text_of(run, "definition"),
            output=_text_of(run, "output"),
            error=_text_of(run, "error"),
            parent_id=_maybe(run, "parent_id", str, "run"),
            rewinds=_maybe(run, "rewinds", int, "run") or 0,
            seed=_maybe(run, "seed", str, "run"),
            serialization=_serialization(run),
            release=_maybe(whole, "perdure", str, "the file") or "",
        )


def _step(step: RecordedStep) -> dict[str, Any]:
    return {
        "index": step.index,
        "name": step.name,
        "status": step.status.name,
        **_payload("input", step.input),
        **_payload("output", step.output),
        **_payload("error", step.error),
        **({"attempts": step.attempts} if step.attempts else {}),
        **_payload("attempt_errors", step.attempt_errors),
    }


def _recorded(data: Any, where: str) -> RecordedStep:
    if not isinstance(data, dict):
        raise HistoryUnreadable(f"{where} is no object")
    text = _text_of(data, "input")
    if text is None:
        raise HistoryUnreadable(f"{where} has no input")
    return RecordedStep(
        index=_of(data, "index", int, where),
        name=_of(data, "name", str, where),
        status=_status(data, StepStatus, where),
        input=text,
        output=_text_of(data, "output"),
        error=_text_of(data, "error"),
        attempts=_maybe(data, "attempts", int, where) or 0,
        attempt_errors=_text_of(data, "attempt_errors"),
        wake_at=None,
        wake_in=None,
    )


def _said(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _payload(key: str, text: str | None) -> dict[str, Any]:
    """A stored text under its key: as JSON where it is some, else as it is."""
    if text is None:
        return {}
    try:
        return {key: json.loads(text)}
    except (ValueError, RecursionError):
        return {key + TEXT: text}


def _text_of(data: Mapping[str, Any], key: str) -> str | None:
    """The stored text: compact, as it is written to the database."""
    if key in data:
        return json.dumps(data[key], separators=(",", ":"))
    return _maybe(data, key + TEXT, str, "the file")


def _of(data: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    found = _maybe(data, key, kind, where)
    if found is None:
        raise HistoryUnreadable(f"{where} has no {key}")
    return found


def _maybe(data: Mapping[str, Any], key: str, kind: type[T], where: str) -> T | None:
    found = data.get(key)
    if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
        raise HistoryUnreadable(f"{key} of {where} is {_shown(found)}, which is no {kind.__name__}")
    return found


S = TypeVar("S", RunStatus, StepStatus)


def _status(data: Mapping[str, Any], kind: type[S], where: str) -> S:
    name = _of(data, "status", str, where)
    try:
        return kind[name]
    except KeyError:
        said = f"the status of {where} is {_shown(name)}, which is none that this release knows"
        raise HistoryUnreadable(said) from None


def _serialization(run: Mapping[str, Any]) -> Serialization | None:
    name = _maybe(run, "serialization", str, "run")
    try:
        return None if name is None else Serialization(name)
    except ValueError:
        said = f"the serialization of run is {_shown(name)}, which is none that this release knows"
        raise HistoryUnreadable(said) from None


def _shown(value: object) -> str:
    return str(value)[:100]
