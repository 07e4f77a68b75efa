"""The names in a sentence: what there is, and which of it was probably meant. Used by `waiting`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

MAX_LISTED = 12
"""Names that a sentence lists: more are not read."""


def listed(names: Iterable[str], *, nothing: str = "none") -> str:
    """`a, b and 3 more`, sorted, so that equal sets are equal text."""
    known = sorted(set(names))
    if not known:
        return nothing
    shown = ", ".join(known[:MAX_LISTED])
    rest = len(known) - MAX_LISTED
    return f"{shown} and {rest} more" if rest > 0 else shown


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """` (did you mean x?)` when one of the names is close, else nothing. Case does not count; the last dotted part
    alone may be what is close."""
    whole = {known.lower(): known for known in sorted(names, reverse=True)}
    last = {known.lower().rsplit(".", 1)[-1]: known for known in sorted(names, reverse=True)}
    for meant, known, cutoff in ((name.lower(), whole, 0.75), (name.lower().rsplit(".", 1)[-1], last, 0.85)):
        close = difflib.get_close_matches(meant, sorted(known), n=1, cutoff=cutoff)
        if close:
            return f" (did you mean {known[close[0]]}?)"
    return ""
