"""As much of Postgres' protocol as the faults need: where a message ends, what a client asks to be executed, when the
server has answered. Pure; fed with bytes as they arrive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
NAME = b"application_name\0"

_GOES_ON = frozenset(b"SQXHdcfp")
"""Messages of a client after which the server may act: everything before them is held together with them."""


class Frames:
    """Cuts a stream of typed messages into whole ones."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete now, each with its type and length."""
        rest = self._rest + data
        at = 0
        while len(rest) - at >= 5:
            end = at + 1 + int.from_bytes(rest[at + 1 : at + 5], "big")
            if end > len(rest):
                break
            yield rest[at:end]
            at = end
        self._rest = rest[at:]


@dataclass(frozen=True)
class Unit:
    """What a client sends before it waits for an answer. `statement` names what is executed by it, empty if nothing."""

    data: bytes
    statement: str


class Questions:
    """The client's side of one session, after its first message."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._held: list[bytes] = []
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, bytes] = {}
        self._statement = ""

    def feed(self, data: bytes) -> Iterator[Unit]:
        """The units that are complete now."""
        for frame in self._frames.feed(data):
            self._note(frame)
            self._held.append(frame)
            if frame[0] in _GOES_ON:
                yield Unit(b"".join(self._held), self._statement)
                self._held, self._statement = [], ""

    def _note(self, frame: bytes) -> None:
        body = frame[5:]
        match frame[:1]:
            case b"P":
                name, query, _ = body.split(b"\0", 2)
                self._prepared[name] = label(query)
            case b"B":
                portal, name, _ = body.split(b"\0", 2)
                self._portals[portal] = name
            case b"E":
                self._statement = self._prepared.get(self._portals.get(body.split(b"\0", 1)[0], b""), "other")
            case b"Q":
                self._statement = label(body.rstrip(b"\0"))


def is_answered(frame: bytes) -> bool:
    """Whether the server has carried out everything up to here, and committed it."""
    return frame[:1] == b"Z"


def hide_name(startup: bytes) -> bytes:
    """A session's first message with another application name, which no longer finds it."""
    at = startup.find(NAME)
    if at < 0:
        return startup
    at += len(NAME)
    changed = startup[:at] + b"~" + startup[at:]
    return len(changed).to_bytes(4, "big") + changed[4:]


def label(query: bytes) -> str:
    """Name of the shipped statement with this text; of any other its first word, in capitals."""
    found = _shipped().get(_squeezed(query.decode()))
    return found or (query.split() or [b"NOTHING"])[0].decode().upper()


@cache
def _shipped() -> dict[str, str]:
    folder = resources.files("perdure.store") / "sql"
    return {_squeezed(file.read_text()): file.name.removesuffix(".sql") for file in folder.iterdir()}


@cache
def statements() -> tuple[str, ...]:
    """The statements that workers send, of all that are shipped."""
    others = re.compile("backlog_|leader_|migration_|status_|run_|client_|worker_(mark_dead|retire|forget)")
    return tuple(sorted(name for name in _shipped().values() if not others.match(name)))


def _squeezed(query: str) -> str:
    return " ".join(query.split())
