"""What pages outside of the guides tell to do on a machine with Python and a Postgres."""

import ast
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import perdure
import pytest

from examples.order import flows
from tests.support.mdblocks import ROOT, SQL, blocks, marked, pages, runner_of
from tests.support.terminal import Terminal
from tests.support.workerproc import working
from tests.worker import undoflows

SETTINGS_OF_A_ROLE = (
    "SELECT unnest(setconfig) FROM pg_db_role_setting JOIN pg_roles r ON r.oid = setrole WHERE rolname = $1"
)


async def test_the_readme_from_python(db: str) -> None:
    """Beside a worker that has the example."""
    (block,) = marked("from-python", "README.md")
    names: dict[str, Any] = {
        "perdure": perdure,
        "process_order": flows.process_order,
        "items": [flows.Item(sku="tea", quantity=2)],
    }
    code = compile(block.text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with working(db, namespace="default"):
        await eval(code, names)
    assert names["receipt"].paid == 4200


def test_the_readme_without_a_cluster(tmp_path: Path) -> None:
    """In a copy of the example whose steps take no time."""
    (block,) = marked("dev", "README.md")
    shutil.copytree(ROOT / "examples" / "order", tmp_path / "examples" / "order")
    workflow = tmp_path / "examples" / "order" / "workflow.yaml"
    slow = workflow.read_text()
    workflow.write_text(slow.replace("pace_seconds: 2", "pace_seconds: 0.3"))
    assert workflow.read_text() != slow
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "Makefile").write_text("venv:\n\t@true\n")
    said = Terminal(tmp_path, {}).run(block)
    assert said.count("  phase: Succeeded") >= 2


def test_the_tutorial_is_installed(tmp_path: Path) -> None:
    """From a copy of the clone, without the network: all but the project itself is what the tests have."""
    (block,) = marked("install", "docs/tutorial.md")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (
            name.startswith(("worker_image/", "operator/", "pyproject", "README", "LICENSE"))
            and (ROOT / name).is_file()
        ):
            (tmp_path / "perdure" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "perdure" / name)
    theirs = Path(asyncpg.__file__).parents[1]
    # For pip this 0 says that there is none.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": str(theirs)}
    commands = "\n".join(command for command, _ in block.commands)
    check = "python -c 'import perdure; print(perdure.__file__)'; perdure version; pip show perdure"
    done = Terminal(tmp_path, offline).ask(f"{commands}\n{check}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(tmp_path / "cafe" / "venv") in done.stdout
    assert f"perdure {perdure.__version__}" in done.stdout


@pytest.fixture
def cafe() -> Iterator[Path]:
    """A folder that everybody may pass: Postgres, started by root, runs as somebody else."""
    with tempfile.TemporaryDirectory(prefix="perdure-cafe-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_postgres_of_the_tutorial(cafe: Path) -> None:
    """At a port that is free here. It is ended as by Ctrl-C."""
    (block,) = marked("postgres", "docs/tutorial.md")
    (activate, _), (serve, _) = block.commands
    assert activate == ". venv/bin/activate"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    argv = serve.replace("python", sys.executable, 1).replace("5433", port).split()
    url = f"postgresql://perdure@127.0.0.1:{port}/perdure"
    with subprocess.Popen(argv, cwd=cafe, stderr=subprocess.DEVNULL) as process:
        try:
            terminal = Terminal(cafe, {"PERDURE_DATABASE_URL": url})
            # As its reader: try until the server is there.
            done = terminal.ask("for try in {1..20}; do perdure migrate && exit; sleep 1; done; exit 1")
            assert "applied 0001" in done.stdout
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


async def test_the_settings_of_a_role_are_printed_and_taken(db: str, conn: "asyncpg.Connection[Any]") -> None:
    (block,) = marked("role-settings", "docs/how-to/poolers.md")
    terminal = Terminal(Path.cwd(), {"PERDURE_DATABASE_URL": db, "DIRECT_URL": db})
    role, database = await conn.fetchrow("SELECT current_user, current_database()")
    try:
        terminal.run(block)
        assert any("statement_timeout" in row[0] for row in await conn.fetch(SETTINGS_OF_A_ROLE, role))
        again = terminal.ask("perdure migrate --role-settings")
        assert "nothing to do" in again.stdout
    finally:
        await conn.execute(f"ALTER ROLE {role} RESET ALL")
        await conn.execute(f"ALTER ROLE {role} IN DATABASE {database} RESET ALL")


SQL_BLOCKS = [block for page in pages() for block in blocks(page) if runner_of(block) == SQL]


@pytest.mark.parametrize("block", SQL_BLOCKS, ids=lambda block: block.place)
async def test_sql_on_a_page_is_understood(conn: "asyncpg.Connection[Any]", block: Any) -> None:
    await conn.execute(block.text)


async def test_the_runbook_of_undo_finds_the_run_and_the_step_that_could_not_be_undone(
    db: str, conn: "asyncpg.Connection[Any]"
) -> None:
    async with working(db), perdure.Client(db, "ns") as client:
        half = await client.start(undoflows.half.options(id="RUN"), "shut", "not fixed")
        whole = await client.start(undoflows.order.options(id="whole"), "shut")
        for handle, error in ((half, perdure.CompensationFailed), (whole, ValueError)):
            with pytest.raises(error):
                await handle.result(20.0)
    page = blocks(ROOT / "docs" / "runbooks" / "undo-incomplete.md")
    runs, steps = [block.text for block in page if runner_of(block) == SQL]
    assert [row["id"] for row in await conn.fetch(runs)] == ["RUN"]
    assert [row["name"] for row in await conn.fetch(steps)] == ["u.give_back_if"]
