"""The blocks of code in all pages, and which test runs each: none stands there that nothing has ever run.

In a guide (docs/how-to, docs/tutorial.md) blocks are run in their order by `tests/worker/test_howto.py`. Elsewhere, and
for what needs a cluster, a comment before the block names the test: `<!-- test: NAME -->`, where NAME is in `RUNNERS`.
`<!-- file: NAME -->` before a block of a guide makes it a file of that name, for the commands that follow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(
    r"^(?: *<!-- (?P<kind>test|file): (?P<name>[^ ]+) -->\n)? *```(?P<language>[a-z]*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)

PAGES = ("*.md", "docs/**/*.md", "charts/**/*.md", "examples/**/*.md")

SHOWN = frozenset({"mermaid", "text"})
"""Pictures, trees of folders, output: nothing that could be run."""

GUIDE = "tests/worker/test_howto.py::test_a_guide_says_what_happens"
RUNBOOK = "tests/reconcile/test_pages.py::test_the_commands_of_runbooks_are_understood"
SQL = "tests/worker/test_pages.py::test_sql_on_a_page_is_understood"
MAKE = "tests/unit/docs/test_blocks.py::test_make_knows_what_pages_tell_to_make"
MANIFEST = "tests/unit/docs/test_blocks.py::test_a_resource_on_a_page_is_accepted"
DOCSTRING = "tests/worker/test_docstrings.py::test_an_example_in_a_docstring_works"

RUNNERS = {
    "charts": "tests/reconcile/test_pages.py::test_the_charts_are_installed_and_removed_as_their_pages_say",
    "dev": "tests/worker/test_pages.py::test_the_readme_without_a_cluster",
    "excerpt": "tests/unit/docs/test_blocks.py::test_an_excerpt_is_of_its_file",
    "from-python": "tests/worker/test_pages.py::test_the_readme_from_python",
    "install": "tests/worker/test_pages.py::test_the_tutorial_is_installed",
    "kubeconfig": "tests/cluster/test_readme.py::test_the_cluster_of_the_demo_is_found",
    "postgres": "tests/worker/test_pages.py::test_the_postgres_of_the_tutorial",
    "refused": "tests/cluster/test_readme.py::test_a_mistake_is_refused_with_a_sentence",
    "role-settings": "tests/worker/test_pages.py::test_the_settings_of_a_role_are_printed_and_taken",
    "testing": "tests/worker/test_testing_plugin.py::test_the_guide_to_testing_passes",
    "tour": "tests/cluster/test_readme.py::test_the_tour",
    "tutorial": "tests/cluster/test_readme.py::test_the_end_of_the_tutorial",
}
"""What stands in `<!-- test: … -->`, and the test that runs it."""


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its first line of text; `kind` and `name` are of the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    kind: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Of a terminal: each command behind `$ `, with the lines of a here-document, and what is shown below it."""
        found: list[tuple[str, str]] = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE):
            if part.strip():
                found.append(_command(part))
        return found


def _command(part: str) -> tuple[str, str]:
    lines = part.rstrip("\n").split("\n")
    taken = 1
    here = re.search(r"<<-?'?(\w+)'?", lines[0])
    while taken < len(lines) and (lines[taken - 1].endswith("\\") or (here and here[1] not in lines[1:taken])):
        taken += 1
    return "\n".join(lines[:taken]), "\n".join(lines[taken:])


def pages() -> list[Path]:
    return sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            dedent(found["text"]),
            found["kind"] or "",
            found["name"] or "",
        )
        for found in FENCE.finditer(text)
    ]


def marked(name: str, *where: str) -> list[Block]:
    """Blocks of all pages, or of some, that say `<!-- test: name -->`."""
    chosen = [ROOT / each for each in where] or pages()
    return [block for page in chosen for block in blocks(page) if (block.kind, block.name) == ("test", name)]


def is_guide(page: Path) -> bool:
    return page.parent == ROOT / "docs" / "how-to" or page == ROOT / "docs" / "tutorial.md"


def is_make(block: Block) -> bool:
    """A block that has nothing but commands of the Makefile, each of which a person starts by hand."""
    lines = [command for command, _ in block.commands] if block.language == "console" else block.text.splitlines()
    return block.language in ("console", "sh") and all(line.startswith("make ") for line in lines)


def guides() -> list[Path]:
    """Pages that have something to run from top to bottom."""
    return [page for page in pages() if is_guide(page) and any(runner_of(each) == GUIDE for each in blocks(page))]


def runner_of(block: Block) -> str | None:
    """The test that runs a block, an empty text for what is only shown, None for what nothing runs."""
    if block.kind == "test":
        return RUNNERS.get(block.name)
    if block.language in SHOWN:
        return ""
    if is_make(block):
        return MAKE
    if block.language == "yaml" and not block.kind:
        return MANIFEST
    if is_guide(block.page) and (block.kind == "file" or block.language in ("python", "console", "sh")):
        return GUIDE
    if block.page.parent == ROOT / "docs" / "runbooks" and block.language == "sh":
        return RUNBOOK
    if block.language == "sql":
        return SQL
    if block.page.is_relative_to(ROOT / "docs/reference/api") and block.language == "python":
        return DOCSTRING
    return None
