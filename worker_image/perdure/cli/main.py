"""Entry point of `perdure`: one function a command, and one place that turns errors into words and exit codes.

What a command needs is imported when it runs, so that `perdure --help` answers at once and a worker image without
the extra `dev` has all the other commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perdure.errors import (
    ConfigurationError,
    InvalidResource,
    MigrationFailed,
    MigrationFilesChanged,
    PayloadsUnavailable,
    PerdureError,
    SchemaOutOfRange,
    StoreUnavailable,
)

RUN_FAILED = 1
BAD_INPUT = 2
NO_CONNECTION = 3

app = typer.Typer(
    help="Durable workflows as Kubernetes resources, at Postgres speed.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


offload_app = typer.Typer(help="Values that are kept in an object store.", no_args_is_help=True)
app.add_typer(offload_app, name="offload")


@contextmanager
def readable_errors() -> Iterator[None]:
    """Our own errors are sentences for the person at the terminal; anything else is a bug and keeps its traceback."""
    try:
        yield
    except PerdureError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(exit_code(error)) from error


def exit_code(error: PerdureError) -> int:
    """2: what was given is wrong; 3: the database does not answer or has another schema; 1: the rest."""
    match error:
        case ConfigurationError() | InvalidResource() | MigrationFilesChanged():
            return BAD_INPUT
        case StoreUnavailable() | SchemaOutOfRange() | MigrationFailed() | PayloadsUnavailable():
            return NO_CONNECTION
        case _:
            return RUN_FAILED


@app.command()
def dev(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file with Workflows, as for kubectl apply, or a folder of them.")
    ],
    module: Annotated[
        list[str] | None,
        typer.Option(help="Python module with workflows and steps; instead of those of the WorkerPool. Repeatable."),
    ] = None,
    path: Annotated[
        list[Path] | None, typer.Option(help="Where modules are, beside the folder of FILE and this one. Repeatable.")
    ] = None,
    kill_worker_at: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Kill the worker (SIGKILL) while this step runs, and start another."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep the database in this folder: a run that was cut off goes on next time.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Worker processes for each pool.")] = 1,
) -> None:
    """Run Workflows on this machine: Postgres, workers and status as in a cluster, without a cluster.

    Ends with the status as YAML. Exit code 0: all succeeded; 1: a run did not; 2: the files are wrong.
    """
    with readable_errors():
        try:
            from perdure.dev.session import Options, run
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{error.name} is missing: install the extra dev, `pip install 'perdure[dev]'`"
            ) from error
        options = Options(
            target=target,
            modules=tuple(module or ()),
            paths=tuple(path or ()),
            kill_at=kill_worker_at,
            data=data,
            workers=workers,
        )
        succeeded = run(options)
    if not succeeded:
        raise typer.Exit(RUN_FAILED)


@app.command()
def worker() -> None:
    """Run a worker. It is set up by environment variables PERDURE_…, as the operator sets them in pods."""
    from perdure.worker.main import run_process

    run_process()


schema = typer.Typer(invoke_without_command=True)
app.add_typer(schema, name="migrate")


@schema.callback()
def migrate(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 3 unless the schema fits.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements and touch no database.")] = False,
    role_settings: Annotated[
        bool,
        typer.Option("--role-settings", help="Print what the role lacks of the settings for a pooler, as SQL."),
    ] = False,
) -> None:
    """Bring the database's schema up to date. Safe to run twice and from several places at once.

    Exit code 0: the schema is up to date; 2: the settings are wrong; 3: the database does not answer, or its schema is
    older or newer than this program's or was changed.
    """
    if context.invoked_subcommand is not None:
        return
    with readable_errors():
        from perdure.cli import database

        if sql:
            typer.echo(database.statements())
        elif role_settings:
            typer.echo("\n".join(database.role_settings()) or "-- nothing to do: the role has all settings")
        elif check:
            database.check()
            typer.echo("the schema is up to date")
        else:
            applied = database.migrate()
            typer.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do: the schema is up to date")


class FileFormat(StrEnum):
    """Kinds of files that `perdure migrate scaffold` writes."""

    SQL = "sql"
    ALEMBIC = "alembic"


@schema.command()
def scaffold(
    to: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files, for example Alembic's versions.")],
    format: Annotated[FileFormat, typer.Option(help="Plain SQL, or revisions of Alembic.")] = FileFormat.SQL,
    after: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Alembic: the revision to stand behind. Default: the head in DIR."),
    ] = None,
) -> None:
    """Write the migrations as files into your own tree, to be applied with your own.

    They run the same text as `perdure migrate`. After an upgrade the same command adds what is new and changes nothing
    that is there. Exit code 2: a file was edited or is missing, or DIR cannot be used; nothing is written then.
    """
    with readable_errors():
        from perdure.store import scaffold as files

        made = files.write(to, files.Format(format), after=after)
        typer.echo("\n".join(f"wrote {path}" for path in made) or "nothing to do: all files are there")


@app.command()
def manifest(
    module: Annotated[
        list[str] | None,
        typer.Option(help="Python module with workflows and steps; instead of those in PERDURE_MODULES. Repeatable."),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Print what is different from this manifest instead.")
    ] = None,
) -> None:
    """Print which workflows and steps the modules have, as JSON: the hash of each workflow's source, its version
    policy, and what goes in.

    With --check, exit code 0: runs that are under way can go on with this code; 1: a workflow is gone or its body has
    changed, and its runs stay with the version that began them; 2: a module or the old manifest cannot be read.
    """
    with readable_errors():
        from perdure.cli import manifests

        found = manifests.of_modules(tuple(module or ()))
        if check is None:
            typer.echo(manifests.text_of(found))
            return
        differences = manifests.compared(check, found)
    typer.echo("\n".join(map(str, differences)) or "nothing is different")
    if any(each.stays for each in differences):
        raise typer.Exit(RUN_FAILED)


@app.command()
def lint(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET...", help="Files, folders, or names of modules, with workflows.")
    ],
) -> None:
    """Find what the bodies of workflows do that a replay would not do again: clocks, chance, races, unrecorded work.

    It reads their source and runs nothing of it. A comment `# perdure: allow=PDL01` allows that rule on its line.
    Exit code 0: nothing was found; 1: something was; 2: a target is not there or is no Python.
    """
    with readable_errors():
        from perdure.lint import files

        found, count = files.lint(targets)
        for finding in found:
            typer.echo(str(finding))
        typer.echo(f"{len(found)} found in {count} files", err=True)
    if found:
        raise typer.Exit(RUN_FAILED)


@app.command()
def export(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The id of a run, ended or not.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; without, it is printed.")
    ] = None,
) -> None:
    """Print the recorded history of a run as JSON, for `perdure replay`. It holds its input and results as they are.

    Exit code 1: there is no such run; 2: the settings are wrong; 3: the database does not answer.
    """
    with readable_errors():
        from perdure.cli import replay as replays

        text = replays.export(run_id)
        if output is None:
            typer.echo(text, nl=False)
            return
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{output} cannot be written: {error}") from error


@app.command()
def replay(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Histories that `perdure export` wrote, or folders of them."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module", "--modules", help="Python module with workflows; else those in PERDURE_MODULES. Repeatable."
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="The `perdure.Instance` whose workflows are meant; else all of the decorators."
        ),
    ] = None,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Replay the newest runs of the database of PERDURE_DATABASE_URL.")
    ] = False,
    workflow: Annotated[str | None, typer.Option(help="With --from-database: runs of this workflow only.")] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="With --from-database: runs only that have not ended.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="With --from-database: the namespace of the runs.")] = "default",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="With --from-database: how many runs.")] = 100,
    strict: Annotated[bool, typer.Option("--strict", help="Runs that have ended must also end as they did.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Run the present code against recorded histories and name the first difference of each. Before a rollout: no run
    that is under way meets another step than it has recorded.

    Runs no step and writes nothing. Exit code 0: the code does what is recorded; 1: it differs, or a history cannot be
    read; 2: nothing to replay, or the modules cannot be imported; 3: the database does not answer.
    """
    with readable_errors():
        from perdure.cli import replay as replays
        from perdure.worker.main import load_modules

        if bool(files) == from_database:
            raise ConfigurationError("name files with histories, or say --from-database")
        names = tuple(module or ()) or tuple(filter(None, os.environ.get("PERDURE_MODULES", "").split(",")))
        if not names and registry is None:
            raise ConfigurationError("name the modules that define the workflows with --module, or in PERDURE_MODULES")
        known = load_modules((*names, registry.partition(":")[0]) if registry else names)
        if registry:
            known = replays.registry_at(registry)
        tally = replays.Tally(strict, known, (lambda _: None) if as_json else typer.echo)
        if from_database:
            replays.replay_database(replays.Selection(namespace, workflow, limit, unfinished), tally)
        else:
            replays.replay_files(files or [], tally)
        if as_json:
            typer.echo(tally.as_json())
        typer.echo(tally.summary(), err=True)
    if not tally.ok:
        raise typer.Exit(RUN_FAILED)


@offload_app.command("sweep")
def offload_sweep(
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module", "--modules", help="Python module that registers the codecs; else those in PERDURE_MODULES."
        ),
    ] = None,
    keep_days: Annotated[
        int, typer.Option(min=2, max=3650, help="Leave the values of so many days before today alone.")
    ] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, say what would be removed.")] = False,
) -> None:
    """Remove values from the store of each `perdure.codecs.Offload` that no row of the database names any more.

    It reads all rows of the database of PERDURE_DATABASE_URL once, in small statements: run it now and then, one at a
    time. The store must be this database's alone. Exit code 2: no such codec is registered, or settings are wrong; 3:
    the database or the store does not answer.
    """
    with readable_errors():
        from perdure.cli import offloading
        from perdure.worker.main import load_modules

        names = tuple(module or ()) or tuple(filter(None, os.environ.get("PERDURE_MODULES", "").split(",")))
        if not names:
            raise ConfigurationError("name the modules that register the codecs with --module, or in PERDURE_MODULES")
        swept = offloading.sweep_all(load_modules(names), keep_days=keep_days, dry_run=dry_run)
        for line in offloading.lines(swept, dry_run=dry_run):
            typer.echo(line)


@app.command()
def version() -> None:
    """Print the version of this program."""
    from perdure import __version__

    typer.echo(f"perdure {__version__}, Python {sys.version.split()[0]}")


def main() -> None:
    """`python -m perdure.cli`."""
    app()
