"""A new password in the mounted Secret reaches the operator without a person."""

import asyncio
from pathlib import Path

import pytest
from perdure_operator.main import stop_when_moved

OLD = "postgresql://perdure:old@db/perdure"
NEW = "postgresql://perdure:new@db/perdure"


async def looked(times: int) -> None:
    """Long enough for that many looks without a pause between them, threads included."""
    for _ in range(times):
        await asyncio.to_thread(lambda: None)


def put(file: Path, text: str | None) -> None:
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "uri"
    file.write_text(OLD)
    monkeypatch.delenv("PERDURE_DATABASE_URL", raising=False)
    monkeypatch.setenv("PERDURE_DATABASE_URL_FILE", str(file))
    return file


async def test_it_ends_when_the_url_is_another_one(mounted: Path) -> None:
    stop = asyncio.Event()
    look = asyncio.create_task(stop_when_moved(OLD, stop, every=0))
    await looked(20)
    assert not stop.is_set()
    put(mounted, NEW)
    async with asyncio.timeout(10):
        await look
    assert stop.is_set()


async def test_a_file_that_is_away_for_a_moment_changes_nothing(mounted: Path) -> None:
    """The kubelet replaces the whole directory; what cannot be read is unknown, not changed."""
    put(mounted, None)
    stop = asyncio.Event()
    look = asyncio.create_task(stop_when_moved(OLD, stop, every=0))
    await looked(20)
    assert not stop.is_set()
    put(mounted, OLD)
    await looked(20)
    assert not stop.is_set()
    look.cancel()
    await asyncio.wait([look])
