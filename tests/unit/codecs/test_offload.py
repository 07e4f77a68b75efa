"""Large values elsewhere: written before anybody is told, found again, and removed only when nobody names them."""

import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from perdure.codecs import Compression, Encryption, Offload
from perdure.codecs.offload import REFERENCE
from perdure.codecs.sweeping import Swept, sweep
from perdure.engine import encoding
from perdure.engine.serialization import Serializers
from perdure.errors import (
    ConfigurationError,
    DecodingFailed,
    EncodingFailed,
    InvalidArgument,
    PayloadsUnavailable,
)

LARGE = '"' + "ä" * 50_000 + '"'


@pytest.fixture(params=["file", "memory"])
def offload(request: pytest.FixtureRequest, tmp_path: Path) -> Offload:
    if request.param == "file":
        return Offload(f"file://{tmp_path}/values")
    return Offload(f"memory://{request.node.name}", at_least=65536)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_large_value_comes_back_and_its_row_has_a_reference(offload: Offload) -> None:
    made = offload.encode(LARGE)
    assert made is not None
    found = REFERENCE.fullmatch(made)
    assert found is not None
    assert found[2] == hashlib.sha256(LARGE.encode()).hexdigest()
    assert int(found[3]) == len(LARGE.encode())
    assert offload.decode(made) == LARGE


def test_a_small_value_stays_in_its_row_bytes_count_and_not_characters(offload: Offload) -> None:
    assert offload.encode("x" * 65535) is None
    assert offload.encode("ä" * 32768) is not None


def test_the_same_value_is_kept_once_a_day(tmp_path: Path) -> None:
    offload = Offload(str(tmp_path), at_least=1)
    assert offload.encode("[1]") == offload.encode("[1]")
    offload.encode("[2]")
    assert len(files(tmp_path)) == 2


def test_an_upload_that_was_cut_is_no_value_and_is_written_again(tmp_path: Path) -> None:
    offload = Offload(str(tmp_path), at_least=1)
    made = offload.encode("[1, 2, 3]")
    (file,) = files(tmp_path)
    file.write_text("[1,")
    assert offload.encode("[1, 2, 3]") == made
    assert file.read_text() == "[1, 2, 3]"
    assert files(tmp_path) == [file]


@pytest.mark.parametrize(
    "spoil",
    [lambda file: file.unlink(), lambda file: file.write_text("[1, 2, 4]"), lambda file: file.write_text("[1, 2, 3]]")],
    ids=["gone", "changed", "longer"],
)
def test_a_value_that_is_gone_or_another_cannot_be_read(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    offload = Offload(str(tmp_path), at_least=1)
    made = offload.encode("[1, 2, 3]")
    assert made is not None
    spoil(files(tmp_path)[0])
    with pytest.raises(DecodingFailed, match=r"is gone|is not what was written"):
        offload.decode(made)


@pytest.mark.parametrize(
    "text", ["", "../../etc/passwd", "20260101/" + "a" * 63 + "/1", "20260101/" + "a" * 64 + f"/{2**40}", "x" * 500]
)
def test_what_names_no_value_is_refused(offload: Offload, text: str) -> None:
    with pytest.raises(DecodingFailed, match="does not say where a value is"):
        offload.decode(text)


def test_more_than_fits_into_memory_several_times_is_refused(offload: Offload, monkeypatch) -> None:
    monkeypatch.setattr("perdure.codecs.offload.MAX_BEFORE_BYTES", 70_000)
    assert encoding.MAX_BEFORE_BYTES == 64 * 1024 * 1024
    with pytest.raises(EncodingFailed, match="70000"):
        offload.encode(LARGE)


@pytest.mark.parametrize("call", ["encode", "decode", "days", "of_day", "remove"])
def test_a_store_that_cannot_be_reached_is_an_outage_to_wait_out(offload: Offload, monkeypatch, call) -> None:
    made = offload.encode(LARGE)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise TimeoutError("no route")

    for name in ("info", "pipe_file", "cat_file", "ls", "find", "rm_file"):
        monkeypatch.setattr(offload._files, name, refuse)
    given = {"encode": [LARGE], "decode": [made], "of_day": ["20260101"], "remove": [["x"]]}.get(call, [])
    with pytest.raises(PayloadsUnavailable, match="no route") as caught:
        getattr(offload, call)(*given)
    assert caught.value.retryable


def test_a_mistake_in_what_is_given_to_the_store_is_not_waited_out(offload: Offload, monkeypatch) -> None:
    monkeypatch.setattr(offload._files, "info", lambda path: len(7))
    with pytest.raises(TypeError):
        offload.encode(LARGE)


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("", {}, InvalidArgument),
        (7, {}, InvalidArgument),
        ("memory://x", {"at_least": -1}, InvalidArgument),
        ("memory://x", {"at_least": "1 MB"}, InvalidArgument),
        ("nothing://user:secret@x", {}, ConfigurationError),
    ],
)
def test_what_cannot_be_used_is_refused_at_once_without_the_password(url, options, error) -> None:
    with pytest.raises(error) as caught:
        Offload(url, **options)
    assert "secret" not in str(caught.value)


# -- sweep


def names_of(*references: str) -> Callable[[str], AsyncIterator[str]]:
    async def names(prefix: str) -> AsyncIterator[str]:
        assert prefix == "!offload:"
        for reference in references:
            yield reference

    return names


def written(offload: Offload, text: str, days_ago: int, monkeypatch: pytest.MonkeyPatch) -> str:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - timedelta(days=days_ago)

    with monkeypatch.context() as then:
        then.setattr("perdure.codecs.offload.datetime", Clock)
        made = offload.encode(text)
    assert made is not None
    return made


async def test_a_sweep_removes_what_no_row_names_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    offload = Offload(f"file://{tmp_path}", at_least=1)
    old = [written(offload, f"[{n}]", 10, monkeypatch) for n in range(3)]
    young = written(offload, "[9]", 2, monkeypatch)
    (tmp_path / "20200101").mkdir()
    (tmp_path / "20200101" / "abc.part").write_text("cut off")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("not ours")

    assert await sweep(offload, names_of(old[0]), dry_run=True) == Swept(4, 1, 3)
    assert await sweep(offload, names_of(old[0])) == Swept(4, 1, 3)
    assert (offload.decode(old[0]), offload.decode(young)) == ("[0]", "[9]")
    for gone in old[1:]:
        with pytest.raises(DecodingFailed):
            offload.decode(gone)
    assert (tmp_path / "notes" / "mine.txt").exists()
    assert not (tmp_path / "20200101" / "abc.part").exists()
    assert await sweep(offload, names_of(old[0])) == Swept(1, 1, 0)


async def test_what_is_written_again_while_a_sweep_is_on_its_way_stays(tmp_path: Path, monkeypatch) -> None:
    """The old one has been listed, its row is gone, and a new row comes to have the same value."""
    offload = Offload(f"file://{tmp_path}", at_least=1)
    written(offload, "[1]", 10, monkeypatch)
    made: list[str] = []

    async def names(prefix: str) -> AsyncIterator[str]:
        made.append(offload.encode("[1]") or "")
        for reference in ():
            yield reference

    assert (await sweep(offload, names)).removed == 1
    assert offload.decode(made[0]) == "[1]"


async def test_a_sweep_that_cannot_read_the_rows_removes_nothing(tmp_path: Path, monkeypatch) -> None:
    offload = Offload(f"file://{tmp_path}", at_least=1)
    made = written(offload, "[1]", 10, monkeypatch)

    async def names(prefix: str) -> AsyncIterator[str]:
        raise ConnectionError("the database went away")
        yield ""

    with pytest.raises(ConnectionError):
        await sweep(offload, names)
    assert offload.decode(made) == "[1]"


async def test_a_store_without_values_is_swept_without_reading_a_row(offload: Offload) -> None:
    async def names(prefix: str) -> AsyncIterator[str]:
        raise AssertionError("asked")
        yield ""

    assert await sweep(offload, names) == Swept()


@pytest.mark.parametrize("days", [1, 0, -3, True, 2.5, "7"])
async def test_a_sweep_leaves_two_days_alone_at_least(offload: Offload, days: Any) -> None:
    with pytest.raises(InvalidArgument, match="at least 2"):
        await sweep(offload, names_of(), keep_days=days)


async def test_a_sweep_goes_by_the_days_of_the_names(tmp_path: Path) -> None:
    offload = Offload(f"file://{tmp_path}", at_least=1)
    offload.encode("[1]")
    today = datetime.now(UTC)
    assert await sweep(offload, names_of(), keep_days=7, today=today + timedelta(days=7)) == Swept()
    assert (await sweep(offload, names_of(), keep_days=7, today=today + timedelta(days=8))).removed == 1


# -- as one of several codecs


def test_it_has_to_be_the_last_codec_as_rows_must_show_what_they_name() -> None:
    serializers = Serializers()
    for codec in (Compression(), Offload("memory://order")):
        serializers.add_codec(codec)
    serializers.use(codecs=["zlib", "offload"])
    with pytest.raises(ConfigurationError, match="offload has to be the last one"):
        serializers.use(codecs=["offload", "zlib"])
    with pytest.raises(ConfigurationError, match="the last one"):
        serializers.with_own(None, [Offload("memory://order"), Encryption({"k": b"k" * 32})])
