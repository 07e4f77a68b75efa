"""What is said about an environment variable, and how a misspelt one is found. Pure; used by worker, operator and the
reference page, so that there is one list of variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

PREFIX = "PERDURE_"

OTHERS = ("PERDURE_TEST_", "PERDURE_CLUSTER_", "PERDURE_IMAGES", "PERDURE_CACHE", "PERDURE_UPDATE_GOLDEN")
"""Variables of this repository's own tools: they may be set where a worker is started by hand."""

_SERVICE_LINK = re.compile(r"^PERDURE_(\w+_)?(SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_\w+)$")
"""What Kubernetes sets for a Service whose name begins with perdure, beside `…_PORT`, which has a URL."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Range of a number, both ends allowed, and its unit as people say it."""

    least: float
    most: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: `name` in full, `meaning` a sentence, `default` as text ("" = none)."""

    name: str
    meaning: str
    default: str = ""
    limit: Limit | None = None


def unknown(env: Mapping[str, str], known: Iterable[str], *, ignored: tuple[str, ...] = OTHERS) -> list[str]:
    """A sentence for each variable `PERDURE_…` that nobody reads, with the nearest name that somebody does."""
    names = set(known)
    notes = []
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in names or name.startswith(ignored) or _of_a_service(name, env[name]):
            continue
        near = get_close_matches(name, sorted(names), n=1, cutoff=0.8)
        notes.append(f"{name} is no setting and is ignored" + (f": is {near[0]} meant?" if near else ""))
    return notes


def _of_a_service(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.match(name)) or (name.endswith("_PORT") and "://" in value)
