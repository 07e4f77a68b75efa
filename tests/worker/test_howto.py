"""The guides' blocks, run as they stand there, with a worker beside them."""

import ast
import asyncio
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from perdure.api import registering
from perdure.engine.registry import Registry

from tests.support.mdblocks import GUIDE, Block, blocks, guides, runner_of
from tests.support.terminal import Terminal, says
from tests.support.workerproc import working

PYTEST = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_asyncio.plugin,perdure.testing.plugin",
    "PYTEST_ADDOPTS": "",
}
"""The reader's pytest has these two alone; the one of the tests has more."""


@pytest.fixture(autouse=True)
def log_levels_stay() -> Iterator[None]:
    """A guide sets the level of a logger, for its reader's process and not for the tests that come after it."""
    known = logging.root.manager.loggerDict
    before = {name: each.level for name, each in known.items() if isinstance(each, logging.Logger)}
    yield
    for name, each in known.items():
        if isinstance(each, logging.Logger):
            each.setLevel(before.get(name, logging.NOTSET))


async def run(block: Block, names: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result


@pytest.mark.timeout(300)  # the tutorial starts a dozen processes
@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.stem)
async def test_a_guide_says_what_happens(db: str, guide: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first block of Python is the module that program and workers share, for commands under the name that its
    first line has. What it registers, other guides do not see."""
    mine = [block for block in blocks(guide) if runner_of(block) == GUIDE]
    terminal = Terminal(tmp_path, {"PERDURE_DATABASE_URL": db, **PYTEST})
    module = ModuleType(f"guide_{guide.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("ORDERS_DATABASE", db)  # of the guide to setting up the application
    registry = Registry()
    monkeypatch.setattr(registering, "default_registry", registry)
    first = next((block for block in mine if block.language == "python" and not block.kind), None)
    if first is not None:
        mine.remove(first)
        await run(first, vars(module))
        if name := re.match(r"# (\w+\.py)\n", first.text):
            (tmp_path / name[1]).write_text(first.text)
    serving = working(db, registry, namespace="default", slots=20, queues=("default", "mails", "thumbnails"))
    # A page without a module has commands alone, which start what they need.
    async with serving if first else nullcontext():
        for block in mine:
            if block.language == "python" and not block.kind:
                await run(block, vars(module))
            else:
                await asyncio.to_thread(terminal.run, block)


@pytest.mark.parametrize(
    ("output", "shown", "equal"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a", False),
        ("a\nb\n", "", True),
        ("a\nb\nc\n", "…\nc", True),
        ("a\nb\nc\n", "a\n…", True),
        ("took 3 s\n", "took … s", True),
        ("took 3 m\n", "took … s", False),
    ],
)
def test_what_a_page_shows_is_compared_with_what_a_command_says(output: str, shown: str, equal: bool) -> None:
    assert says(output, shown) is equal
