"""Migrations as files in a user's own tree, to be applied by the tool with which they apply their own.

Called by `perdure migrate scaffold`. The files run the very text that `migrate` runs, record included, so that
`perdure migrate --check` agrees afterwards. What was written is never changed: a later call adds what is new, and
refuses when a file is no longer what it wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perdure.errors import ConfigurationError, MigrationFilesChanged
from perdure.store import migrate
from perdure.store.split import split

PREFIX = "perdure_"


class Format(StrEnum):
    """Kinds of files: plain SQL, or revisions of Alembic."""

    SQL = "sql"
    ALEMBIC = "alembic"


@dataclass(frozen=True, slots=True)
class Part:
    """One file: what comes before all migrations (version 0), or one of them."""

    version: int
    name: str
    text: str

    @property
    def revision(self) -> str:
        """Alembic's id of it: fits the 32 characters of its table."""
        return f"{PREFIX}{self.version:04}"


def parts() -> list[Part]:
    """Everything for an empty database, in order."""
    found = [Part(0, "0000_bootstrap", migrate.bootstrap())]
    return [*found, *(Part(each.version, each.name, each.script) for each in migrate.migrations())]


def write(folder: Path, kind: Format, *, after: str | None = None) -> list[Path]:
    """Write the files that are not there yet; their paths, in order.

    `after` is the revision of Alembic behind which the first new one stands; None: the head of those in `folder`.
    Raises `ConfigurationError` when the folder cannot be used or has several heads, `MigrationFilesChanged` when a
    file is missing between others or is not what it was; nothing is written then.
    """
    if kind is Format.SQL and after is not None:
        raise ConfigurationError("--after is for revisions of Alembic: plain files are ordered by their names")
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder")
    new = _new_parts(folder, kind)
    made: dict[Path, str] = {}
    before = None if kind is Format.SQL else after if after is not None else _head(folder)
    for part in new:
        made[_path(folder, kind, part)] = part.text if kind is Format.SQL else revision_file(part, before)
        before = part.revision
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in made.items():
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot write into {folder}: {error}") from error
    return list(made)


def revision_file(part: Part, before: str | None) -> str:
    """A revision of Alembic that runs the statements of `part` behind revision `before`."""
    statements = "".join(f"    {_literal(each)},\n" for each in split(part.text))
    return _REVISION.format(
        name=part.name, revision=part.revision, before=None if before is None else f'"{before}"', statements=statements
    )


_REVISION = '''"""Perdure's schema: {name}.

Written by `perdure migrate scaffold`. Leave it as it is: every worker compares what was applied with what it knows.
"""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = {before}
branch_labels = None
depends_on = None

STATEMENTS = (
{statements})


def upgrade() -> None:
    for statement in STATEMENTS:
        # Escaped, as a colon would begin the name of a parameter.
        op.execute(sa.text(statement.replace(":", "\\\\:")))


def downgrade() -> None:
    raise NotImplementedError("Perdure's schema only goes forward")
'''

_OF_THE_TREE = frozenset({"down_revision", "branch_labels", "depends_on"})
"""What belongs to the user's chain of revisions, and may be changed with it."""


def _literal(text: str) -> str:
    plain = "\\" not in text and '"""' not in text and not text.endswith('"')
    return f'"""{text}"""' if plain else repr(text)


def _path(folder: Path, kind: Format, part: Part) -> Path:
    return folder / f"{PREFIX}{part.name}{'.sql' if kind is Format.SQL else '.py'}"


def _new_parts(folder: Path, kind: Format) -> list[Part]:
    """Parts without a file. Every file that is there must be what was written, and none may be missing before it."""
    known = {_path(folder, kind, part): part for part in parts()}
    there = [path for path in sorted(folder.glob(f"{PREFIX}[0-9]*")) if path.suffix in {".sql", ".py"}]
    foreign = [path.name for path in there if path not in known]
    if foreign:
        raise MigrationFilesChanged(
            f"{folder} has {', '.join(foreign)}, which this program does not write as {kind}: use the program and the "
            "format that wrote them"
        )
    last = max((known[path].version for path in there), default=-1)
    missing = [path.name for path, part in known.items() if part.version < last and path not in there]
    edited = [path.name for path in there if not _unchanged(path, kind, known[path])]
    if missing or edited:
        said = [
            f"{', '.join(names)} {verb}" for names, verb in ((edited, "was edited"), (missing, "is missing")) if names
        ]
        raise MigrationFilesChanged(f"in {folder} {'; '.join(said)}: bring back what was written there")
    return [part for path, part in known.items() if path not in there]


def _unchanged(path: Path, kind: Format, part: Part) -> bool:
    text = _read(path)
    if kind is Format.SQL:
        return text == part.text
    try:
        return _meaning(text) == _meaning(revision_file(part, None))
    except SyntaxError:
        return False


def _meaning(program: str) -> list[str]:
    """What a revision does, apart from its form and its place in the chain: formatters and rebasing may touch it."""
    nodes = ast.parse(program).body
    own = [node for node in nodes if not set(_assigned(node)) & _OF_THE_TREE]
    return sorted(ast.dump(node) for node in own if not isinstance(node, ast.Expr))


def _head(folder: Path) -> str | None:
    """The one revision in the folder that no other stands behind; None in an empty folder."""
    revisions: set[str] = set()
    below: set[str] = set()
    for path in sorted(folder.glob("*.py")):
        try:
            values = _values(ast.parse(_read(path)))
        except SyntaxError as error:
            raise ConfigurationError(f"{path} cannot be read: {error}; name the head with --after") from error
        revisions |= _names(values.get("revision"))
        below |= _names(values.get("down_revision"))
    heads = sorted(revisions - below)
    if len(heads) > 1:
        raise ConfigurationError(f"{folder} has several heads ({', '.join(heads)}): name one with --after")
    return heads[0] if heads else None


def _values(program: ast.Module) -> dict[str, object]:
    found: dict[str, object] = {}
    for node in program.body:
        for name in _assigned(node):
            if name in {"revision", "down_revision"} and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                found[name] = ast.literal_eval(node.value)
    return found


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return (target.id for target in targets if isinstance(target, ast.Name))


def _names(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    return {each for each in value if isinstance(each, str)} if isinstance(value, tuple | list) else set()


def _read(path: Path) -> str:
    # Universal newlines: a checkout may have changed the ends of lines, and nothing else.
    return path.read_text(encoding="utf-8")
