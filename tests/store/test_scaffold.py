"""Whoever applies the migrations, the same text is run and the same schema is there afterwards."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from perdure.errors import ConfigurationError, MigrationFilesChanged
from perdure.store import migrate, pool, scaffold
from perdure.store.scaffold import Format, parts
from perdure.store.split import split

from tests.store.builders import Connection

CATALOG = (Path(__file__).parents[1] / "support" / "catalog.sql").read_text()

ENV = """
import asyncio
from alembic import context
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

config = context.config


def run(connection):
    @event.listens_for(connection, "before_cursor_execute")
    def seen(_connection, _cursor, statement, _parameters, _context, _many):
        config.attributes["seen"].append(statement)

    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


async def main():
    engine = create_async_engine(config.attributes["url"])
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


asyncio.run(main())
"""

OWN = """
from alembic import op

revision = "{revision}"
down_revision = {below}


def upgrade():
    op.execute("CREATE TABLE public.{revision} (id integer)")
"""


class Alembic:
    """A user's own tree of revisions."""

    def __init__(self, folder: Path) -> None:
        self.versions = folder / "versions"
        self.versions.mkdir()
        (folder / "env.py").write_text(ENV)
        self._config = Config(attributes={"seen": []})
        self._config.set_main_option("script_location", str(folder))
        self._config.set_main_option("path_separator", "os")

    def own(self, revision: str, below: str | None) -> None:
        (self.versions / f"{revision}.py").write_text(OWN.format(revision=revision, below=repr(below)))

    def chain(self) -> list[str]:
        """All revisions, the first one first."""
        return [each.revision for each in ScriptDirectory.from_config(self._config).walk_revisions()][::-1]

    async def upgrade(self, url: str) -> list[str]:
        """To the head; the statements that ran."""
        self._config.attributes["url"] = url.replace("postgresql://", "postgresql+asyncpg://", 1)
        await asyncio.to_thread(command.upgrade, self._config, "head")
        return list(self._config.attributes["seen"])


@pytest.fixture
def alembic(tmp_path: Path) -> Alembic:
    return Alembic(tmp_path)


async def catalog(conn: Connection) -> list[str]:
    return [row[0] for row in await conn.fetch(CATALOG)]


async def by_program(url: str, monkeypatch: pytest.MonkeyPatch, _: Alembic) -> list[str]:
    seen: list[str] = []
    connect = pool.connect

    async def logged(*args: Any, **kwargs: Any) -> Any:
        connection = await connect(*args, **kwargs)
        connection.add_query_logger(lambda record: seen.append(record.query))
        return connection

    monkeypatch.setattr(migrate, "connect", logged)
    await migrate.migrate(url)
    texts = {part.text for part in parts()}
    return [each for each in seen if each in texts]


async def by_script(url: str, _monkeypatch: pytest.MonkeyPatch, _: Alembic) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(migrate.statements())
    finally:
        await connection.close()
    first, *others = migrate.statements().split("\nBEGIN;\n")
    return [first, *(each.removesuffix("COMMIT;\n") for each in others)]


async def by_files(url: str, _monkeypatch: pytest.MonkeyPatch, tree: Alembic) -> list[str]:
    files = scaffold.write(tree.versions, Format.SQL)
    connection = await asyncpg.connect(url)
    try:
        for file in sorted(tree.versions.glob("*.sql")):
            async with connection.transaction():
                await connection.execute(file.read_text())
    finally:
        await connection.close()
    return [file.read_text() for file in files]


async def by_alembic(url: str, _monkeypatch: pytest.MonkeyPatch, tree: Alembic) -> list[str]:
    scaffold.write(tree.versions, Format.ALEMBIC)
    seen = await tree.upgrade(url)
    return [each for each in seen if "alembic_version" not in each and "perdure" in each]


Route = Callable[[str, pytest.MonkeyPatch, Alembic], Awaitable[list[str]]]
ROUTES: list[Route] = [by_program, by_script, by_files, by_alembic]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__)
async def test_every_route_runs_the_same_text_and_makes_the_same_schema(
    empty_pg_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch, alembic: Alembic, route: Route
) -> None:
    ran = await route(empty_pg_url, monkeypatch, alembic)
    made = await asyncpg.connect(empty_pg_url)
    try:
        assert await catalog(made) == await catalog(conn)
        await migrate.check(made)
    finally:
        await made.close()
    assert await migrate.migrate(empty_pg_url) == []
    # Alembic runs the statements of a text one by one; "".join of them, semicolons added, is the text (unit tests).
    texts = [part.text for part in parts()]
    assert ran == ([each for text in texts for each in split(text)] if route is by_alembic else texts)


def test_each_file_and_each_revision_is_the_text_of_its_migration(tmp_path: Path) -> None:
    for part, file in zip(parts(), scaffold.write(tmp_path / "sql", Format.SQL), strict=True):
        assert file.read_bytes() == part.text.encode()
    for part, file in zip(parts(), scaffold.write(tmp_path / "alembic", Format.ALEMBIC), strict=True):
        values: dict[str, Any] = {}
        exec(file.read_text(), values)  # what Alembic does, too
        assert "".join(f"{each};" for each in values["STATEMENTS"]) + "\n" == part.text


async def test_a_schema_made_by_an_administrator_is_used(empty_pg_url: str, tmp_path: Path) -> None:
    connection = await asyncpg.connect(empty_pg_url)
    try:
        await connection.execute("CREATE SCHEMA perdure")
        for file in scaffold.write(tmp_path, Format.SQL):
            await connection.execute(file.read_text())
        await migrate.check(connection)
    finally:
        await connection.close()


async def test_revisions_hang_on_the_users_head_and_upgrade_with_their_own(
    empty_pg_url: str, alembic: Alembic, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrate.migrations()
    alembic.own("first", None)
    monkeypatch.setattr(migrate, "migrations", lambda: every[:2])
    scaffold.write(alembic.versions, Format.ALEMBIC)
    assert alembic.chain() == ["first", "perdure_0000", "perdure_0001", f"perdure_{every[1].version:04}"]
    await alembic.upgrade(empty_pg_url)

    alembic.own("second", alembic.chain()[-1])
    monkeypatch.setattr(migrate, "migrations", lambda: every)
    before = {path: path.read_bytes() for path in alembic.versions.glob("*.py")}
    made = scaffold.write(alembic.versions, Format.ALEMBIC)
    assert len(made) == len(every) - 2
    assert {path: path.read_bytes() for path in before} == before
    assert alembic.chain()[4] == "second"
    assert len(alembic.chain()) == len(every) + 3
    await alembic.upgrade(empty_pg_url)
    assert await migrate.migrate(empty_pg_url) == []


async def test_signs_that_mean_something_to_alembic_or_python_arrive_as_they_are(
    empty_pg_url: str, alembic: Alembic, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = """ :name ::text 100% %(x)s {0} \\: \\n \\\\ "x" \t ''"""
    more = (*migrate.migrations(), migrate.Migration(9999, "9999_odd", f"COMMENT ON SCHEMA perdure IS '{odd}';"))
    monkeypatch.setattr(migrate, "migrations", lambda: more)
    scaffold.write(alembic.versions, Format.ALEMBIC)
    await alembic.upgrade(empty_pg_url)
    connection = await asyncpg.connect(empty_pg_url)
    try:
        said = await connection.fetchval("SELECT obj_description('perdure'::regnamespace)")
    finally:
        await connection.close()
    assert said == odd.replace("''", "'")
    assert await migrate.migrate(empty_pg_url) == []


def test_the_user_names_the_revision_where_there_are_several_heads(alembic: Alembic) -> None:
    alembic.own("left", None)
    alembic.own("right", None)
    with pytest.raises(ConfigurationError, match=r"several heads \(left, right\)"):
        scaffold.write(alembic.versions, Format.ALEMBIC)
    assert len(list(alembic.versions.iterdir())) == 2
    scaffold.write(alembic.versions, Format.ALEMBIC, after="right")
    assert 'down_revision = "right"' in (alembic.versions / "perdure_0000_bootstrap.py").read_text()


@pytest.mark.parametrize("kind", list(Format))
def test_a_second_call_writes_nothing(tmp_path: Path, kind: Format) -> None:
    assert len(scaffold.write(tmp_path, kind)) == len(parts())
    assert scaffold.write(tmp_path, kind) == []


@pytest.mark.parametrize("kind", list(Format))
@pytest.mark.parametrize("change", ["edited", "missing", "foreign"])
def test_what_is_not_as_it_was_written_is_noticed_and_nothing_is_written(
    tmp_path: Path, kind: Format, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: every[:2])
    files = scaffold.write(tmp_path, kind)
    monkeypatch.setattr(migrate, "migrations", lambda: every)
    match change:
        case "edited":
            files[1].write_text(files[1].read_text().replace("fillfactor = 80", "fillfactor = 90"))
        case "missing":
            files[1].unlink()
        case "foreign":
            files[1].with_name(f"perdure_9999_future{files[1].suffix}").write_text("")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(MigrationFilesChanged, match="9999_future" if change == "foreign" else files[1].name):
        scaffold.write(tmp_path, kind)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_formatter_and_a_new_place_in_the_chain_are_no_edits(tmp_path: Path) -> None:
    files = scaffold.write(tmp_path, Format.ALEMBIC)
    text = files[1].read_text().replace('down_revision = "perdure_0000"', 'down_revision: str = "rebased"')
    files[1].write_text(text)
    subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-q", "--isolated", "--line-length=60", tmp_path], check=True
    )
    assert files[1].read_text() != text
    assert scaffold.write(tmp_path, Format.ALEMBIC, after="rebased") == []


def test_other_ends_of_lines_are_no_edit(tmp_path: Path) -> None:
    for file in scaffold.write(tmp_path, Format.SQL):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert scaffold.write(tmp_path, Format.SQL) == []


def test_one_folder_has_files_of_one_kind(tmp_path: Path) -> None:
    scaffold.write(tmp_path, Format.SQL)
    with pytest.raises(MigrationFilesChanged, match="does not write as alembic"):
        scaffold.write(tmp_path, Format.ALEMBIC)


def test_a_place_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="is not a folder"):
        scaffold.write(file, Format.SQL)
    with pytest.raises(ConfigurationError, match="--after is for revisions of Alembic"):
        scaffold.write(tmp_path, Format.SQL, after="x")
