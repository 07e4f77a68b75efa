"""Large values in an object store instead of Postgres; a row has what finds them again.

What is written is called by the day and by the SHA-256 of its bytes. So the same value is written once a day, a cut
upload is no value, and what `sweep` takes for garbage (a day that is over for long, and no row that names it) can never
be named again by a row that is written meanwhile: that one would name today's.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from perdure.engine.encoding import MARK, MAX_BEFORE_BYTES
from perdure.errors import ConfigurationError, DecodingFailed, EncodingFailed, InvalidArgument, PayloadsUnavailable

REFERENCE = re.compile(r"(\d{8})/([0-9a-f]{64})/(\d{1,10})")
"""Day, digest and number of bytes: what stands in a row behind the name of the codec."""

_DAY = re.compile(r"\d{8}")
_WRONG = (TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What no waiting helps against."""


class Offload:
    """Keeps large values in a file system of fsspec: S3, GCS, Azure, a shared folder. Needs `perdure[offload]`, and
    what fsspec needs for the URL.

    `url`: the folder, for instance `s3://bucket/perdure`; it is this database's alone. `options` are those of the file
    system; give it limits of time. `at_least`: bytes from which on a value goes there. `name` stands before the stored
    text and must stay.

    A value is there before its row is written, and stays until `perdure offload sweep` finds that no row names it any
    more. When the store cannot be reached, runs wait for it as for the database (`PayloadsUnavailable`); a value that
    is gone is `DecodingFailed`. It has to be the last of the codecs. At most 64 MiB.

    Raises `InvalidArgument`, and `ConfigurationError` without the extra or for a URL that fsspec does not know.
    """

    blocking = True
    outermost = True
    """Nothing may be done with its texts: rows must show what they name."""

    def __init__(self, url: str, *, at_least: int = 64 * 1024, name: str = "offload", **options: Any) -> None:
        if not isinstance(url, str) or not url:
            raise InvalidArgument(f"url must be that of a folder, not {url!r}")
        if not isinstance(at_least, int) or isinstance(at_least, bool) or at_least < 0:
            raise InvalidArgument(f"at_least must be a number of bytes, not {at_least!r}")
        self.name = name
        self._at_least = at_least
        self._files, self._root = _file_system(url, options)

    def encode(self, text: str, /) -> str | None:
        """The reference, once the bytes are in the store; None for what is small. Raises `PayloadsUnavailable`."""
        data = text.encode()
        if len(data) < self._at_least:
            return None
        if len(data) > MAX_BEFORE_BYTES:
            raise EncodingFailed(f"a value has {len(data)} bytes, at most {MAX_BEFORE_BYTES} are put elsewhere")
        day, digest = datetime.now(UTC).strftime("%Y%m%d"), hashlib.sha256(data).hexdigest()
        path = self._path(day, digest)
        with self._reaching(f"write {path}"):
            if self._size(path) != len(data):
                self._write(path, data)
        return f"{day}/{digest}/{len(data)}"

    def decode(self, text: str, /) -> str:
        """Raises `PayloadsUnavailable`, and `DecodingFailed` for a value that is gone or is not what was written."""
        found = REFERENCE.fullmatch(text)
        if found is None or int(found[3]) > MAX_BEFORE_BYTES:
            raise DecodingFailed(f"{text[:100]!r} does not say where a value is")
        path = self._path(found[1], found[2])
        try:
            with self._reaching(f"read {path}"):
                data = self._files.cat_file(path, start=0, end=int(found[3]) + 1)
        except FileNotFoundError:
            raise DecodingFailed(f"the value {path} is gone") from None
        if hashlib.sha256(data).hexdigest() != found[2]:
            raise DecodingFailed(f"the value {path} is not what was written there")
        return str(data, "utf-8")

    # -- for the sweep

    @property
    def prefix(self) -> str:
        """How a stored text begins that names one of its values."""
        return f"{MARK}{self.name}:"

    def days(self) -> list[str]:
        """The days of which there are values, oldest first. Raises `PayloadsUnavailable`."""
        with self._reaching(f"list {self._root}"):
            self._files.invalidate_cache()
            try:
                names = [str(name).rstrip("/").rpartition("/")[2] for name in self._files.ls(self._root, detail=False)]
            except FileNotFoundError:
                return []
        return sorted(name for name in names if _is_day(name))

    def of_day(self, day: str) -> dict[str, str]:
        """The paths of one day's values by what rows name them; unfinished uploads have no such name."""
        with self._reaching(f"list {self._root}/{day}"):
            self._files.invalidate_cache()
            paths = [str(path) for path in self._files.find(f"{self._root}/{day}")]
        return {f"{day}/{path.rpartition('/')[2]}": path for path in paths}

    def remove(self, paths: list[str]) -> None:
        """Take these away; what is gone already is no error."""
        with self._reaching("remove values"):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(path)

    def _path(self, day: str, digest: str) -> str:
        return f"{self._root}/{day}/{digest[:2]}/{digest}"

    def _size(self, path: str) -> int | None:
        try:
            size = self._files.info(path).get("size")
        except FileNotFoundError:
            return None
        return None if size is None else int(size)

    def _write(self, path: str, data: bytes) -> None:
        """At once or not at all: stores of objects do that themselves, folders by a new name."""
        if "file" not in _protocols(self._files):
            self._files.pipe_file(path, data)
            return
        unfinished = f"{path}.{uuid.uuid4().hex}.part"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(unfinished, data)
        self._files.mv(unfinished, path)

    @contextlib.contextmanager
    def _reaching(self, what: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, *_WRONG):
            raise
        except Exception as error:
            raise PayloadsUnavailable(f"cannot {what}: {type(error).__name__}: {error}") from error


def _file_system(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ConfigurationError(f"perdure.codecs.Offload needs perdure[offload]: {error}") from error
    try:
        files, root = url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        # Without what may be a password.
        shown = re.sub(r"//[^/@]*@", "//", url.partition("?")[0])
        raise ConfigurationError(f"{shown} cannot be used for payloads: {type(error).__name__}: {error}") from None
    return files, str(root).rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _is_day(name: str) -> bool:
    if not _DAY.fullmatch(name):
        return False
    try:
        date(int(name[:4]), int(name[4:6]), int(name[6:]))
    except ValueError:
        return False
    return True
