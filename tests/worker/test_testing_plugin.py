"""The pytest plugin of the testing kit, in sessions of its own, and the guide that shows it."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "how-to" / "testing.md"
BLOCK = re.compile(r"^```(?:python|ini)\n(# ([\w.]+)\n.*?)^```$", re.MULTILINE | re.DOTALL)

FLOW = """
import perdure


@perdure.step
async def greet(name: str) -> str:
    return f"hello {name}"


@perdure.workflow
async def hello(name: str) -> str:
    await perdure.sleep(3600)
    return await greet(name)
"""

Session = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def session(tmp_path: Path, pg_server: PostgresServer) -> Session:
    """Runs pytest over these files, with no other plugins than ours and pytest-asyncio; on the tests' own server, or an
    embedded one."""

    def run(
        files: dict[str, str],
        *arguments: str,
        plugins: tuple[str, ...] = ("pytest_asyncio.plugin",),
        embedded: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        given = [part for plugin in (*plugins, "perdure.testing.plugin") for part in ("-p", plugin)]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *given, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTEST_"))},
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "worker_image")]),
                "PERDURE_TEST_DATABASE_URL": "" if embedded else pg_server.url(),
            },
        )

    return run


def test_the_guide_to_testing_passes(session: Session) -> None:
    """With an embedded server, as its readers have it."""
    files = {name: text for text, name in BLOCK.findall(GUIDE.read_text())}
    assert len(files) == GUIDE.read_text().count("<!-- test: testing -->")
    done = session(files, embedded=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


def test_tests_do_not_see_each_other_and_are_set_by_option_and_marker(
    session: Session, pg_server: PostgresServer
) -> None:
    test = """
    import os
    import pytest
    from flow import hello

    @pytest.mark.asyncio
    @pytest.mark.parametrize("number", [1, 2])
    async def test_alone(perdure_env, number):
        await hello.options(id="the same").start("Ada")
        assert len((await perdure_env.list_workflows()).runs) == 1
        assert perdure_env.always_replay

    @pytest.mark.asyncio
    @pytest.mark.perdure(always_replay=False, auto_skip=False, slots=3, patience=1.5)
    async def test_marked(perdure_env):
        assert (perdure_env.always_replay, perdure_env.auto_skip, perdure_env.patience) == (False, False, 1.5)

    def test_without_a_loop(perdure_database, perdure_postgres):
        assert os.environ["PERDURE_DATABASE_URL"] == perdure_database
        other = perdure_postgres.create()
        assert other != perdure_database
        perdure_postgres.drop(other)
    """
    done = session({"flow.py": FLOW, "test_it.py": _dedented(test)}, "--perdure-always-replay", "--strict-markers")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert databases(pg_server) == []


def test_a_fault_that_never_happens_fails_its_test_but_no_failed_one(session: Session) -> None:
    test = """
    import pytest
    from flow import greet, hello

    @pytest.mark.asyncio
    async def test_misspelled(perdure_env):
        perdure_env.crash("great")
        assert await hello.run("Ada") == "hello Ada"

    @pytest.mark.asyncio
    async def test_failed(perdure_env):
        perdure_env.crash(greet)
        raise KeyError("its own error")
    """
    done = session({"flow.py": FLOW, "test_it.py": _dedented(test)})
    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "never happened: crash started in great, attempt 1" in done.stdout


def test_without_pytest_asyncio_the_plugin_harms_nobody(session: Session) -> None:
    test = """
    def test_plain():
        pass

    def test_a_database(perdure_database):
        assert "perdure_test_" in perdure_database
    """
    done = session({"test_it.py": _dedented(test)}, plugins=())
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_role_that_may_not_create_databases_is_told_so(session: Session, pg_server: PostgresServer) -> None:
    from perdure.errors import ConfigurationError
    from perdure.testing.server import in_a_thread, serving

    async def add_role() -> None:
        async with pg_server._administrator() as administrator:
            await administrator.execute("CREATE ROLE poor LOGIN")

    in_a_thread(add_role())
    url = pg_server.url().replace("postgres@", "poor@")
    with pytest.raises(ConfigurationError, match="role that may create databases"), serving(url):
        pass


def test_pytest_finds_the_plugin_where_perdure_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"perdure.testing.plugin": "perdure.testing.plugin"}
    assert "testing/sql/*.sql" in project["tool"]["setuptools"]["package-data"]["perdure"]


def test_without_pytest_the_kit_can_be_imported() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; import perdure.testing; print(perdure.testing.Environment.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "worker_image")},
    )
    assert done.stdout == "Environment\n"


def databases(server: PostgresServer) -> list[str]:
    """What sessions have left behind."""
    from perdure.testing.server import in_a_thread

    async def find() -> list[str]:
        async with server._administrator() as administrator:
            rows = await administrator.fetch("SELECT datname FROM pg_database WHERE datname LIKE 'perdure\\_te%'")
            return [row["datname"] for row in rows if row["datname"] != "perdure_template"]

    return in_a_thread(find())


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())
