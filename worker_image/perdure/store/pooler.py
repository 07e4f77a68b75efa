"""Connection poolers between Perdure and Postgres: what is said about them, and what errors say. Pure.

A pooler in transaction mode lends a session for one transaction and then to somebody else. Whatever lives in a session
is lost or, worse, another's: prepared statements, settings, advisory locks, LISTEN. With `PERDURE_DATABASE_POOLER` (or
`?pooler=transaction` in the URL, where the setting ends up) none of them is used:

| in a session of one's own | through a pooler in transaction mode |
|---|---|
| statements prepared once | parsed and planned each time |
| limits and planner settings at the start of a session | on the role: `perdure migrate --role-settings` |
| LISTEN | polling alone |
| leadership by an advisory lock | a row with an expiry |
| sessions of a dead worker are ended | they time out |
"""

from __future__ import annotations

from enum import StrEnum

import asyncpg

from perdure.errors import ConfigurationError

PARAMETER = "pooler"
VARIABLE = "PERDURE_DATABASE_POOLER"

PASSED_ON = frozenset({"application_name", "timezone"})
"""Settings that a pooler keeps for each of its clients; it refuses others at the start of a session."""

APPLICATION_NAME = "perdure"
"""Name of all sessions behind a pooler: with a name of each client the pooler would set it before each transaction."""

_REFUSED = "unsupported startup parameter"
_NOT_THE_SAME_SESSION = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)


class Pooler(StrEnum):
    """What stands before the database."""

    NONE = "none"
    TRANSACTION = "transaction"


def pooled(url: str) -> bool:
    """Whether the URL leads to a pooler in transaction mode."""
    return f"{PARAMETER}={Pooler.TRANSACTION}" in _query(url)


def checked_pooler(value: str, source: str) -> Pooler:
    """Raises `ConfigurationError` for anything but `none` and `transaction`; `source` says where it came from."""
    try:
        return Pooler(value.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"{source} is {value!r}: set it to transaction when a pooler in transaction mode stands before Postgres, "
            "else to none"
        ) from None


def with_pooler(url: str, value: str) -> str:
    """The URL with what the setting says; a URL that says it itself stays as it is."""
    said = [each.partition("=")[2] for each in _query(url) if each.startswith(f"{PARAMETER}=")]
    for each in said:
        checked_pooler(each, f"the URL's parameter {PARAMETER}")
    if said or not value.strip() or checked_pooler(value, VARIABLE) is Pooler.NONE:
        return url
    return f"{url}{'&' if '?' in url else '?'}{PARAMETER}={Pooler.TRANSACTION}"


def plain(url: str) -> str:
    """The URL without this project's own parameter, for the driver."""
    query = [each for each in _query(url) if not each.startswith(f"{PARAMETER}=")]
    return "?".join(each for each in (url.partition("?")[0], "&".join(query)) if each)


def _query(url: str) -> list[str]:
    """Not by `urllib`, which puts a URL without a host (a socket's) together in another way."""
    return url.partition("?")[2].split("&")


def explain(error: BaseException) -> str | None:
    """What to do, if the error shows that a pooler in transaction mode is in the way that nobody told us of."""
    if isinstance(error, asyncpg.PostgresError) and _REFUSED in str(error):
        return (
            f"a connection pooler stands before Postgres and refuses settings of a session ({error}): "
            f"set {VARIABLE}=transaction, or connect to Postgres itself"
        )
    if isinstance(error, _NOT_THE_SAME_SESSION):
        return (
            f"two statements of one session met different sessions of Postgres ({error}): a connection pooler in "
            f"transaction mode stands between: set {VARIABLE}=transaction, or connect to Postgres itself"
        )
    return None
