"""What is wrong with the URL of a database, in words that hold nothing of it but its scheme. Pure; used by `pool`."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

SCHEMES = ("postgresql", "postgres")

_ESCAPES = "what of / ? # @ or % stands in the user's name or password is written with a percent sign, / as %2F"


def problem(url: str) -> str | None:
    """A clause for a sentence that begins with where the URL came from; None for one that can be tried.

    Several hosts with commas, sockets (`?host=/run/postgresql`) and escaped passwords are as good as one host.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"is not a URL: {_ESCAPES}, and an IPv6 address stands in brackets"
    if parts.scheme not in SCHEMES:
        # Of a text without a scheme nothing is shown: what stands before its first colon may be a password.
        scheme = parts.scheme if "://" in url else ""
        named = f"not {scheme}" if scheme else "not something without a scheme"
        return f"must be a postgresql:// URL, {named}: Perdure keeps its runs in Postgres only"
    if not url.startswith(f"{parts.scheme}://"):
        return f"must begin with {parts.scheme}://"
    if parts.fragment or url.endswith("#"):
        return f"has a # in it: {_ESCAPES}"
    if "@" in parts.path:
        return f"has an @ behind the host: {_ESCAPES}"
    hosts = parts.netloc.rpartition("@")[2]
    elsewhere = parse_qs(parts.query).get("host", [""])[0]
    if not hosts and not elsewhere:
        return "names no host: postgresql://user:password@host:5432/name"
    if any(not _usable(each) for each in hosts.split(",") if hosts):
        return f"has a host or port that cannot be read: {_ESCAPES}"
    return None


def _usable(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "5432"
    bracketed = name.startswith("[") and name.endswith("]")
    plain = bool(name) and not set(name) & set(":[] ")
    return (bracketed or plain) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
