"""The guides' blocks, run as they stand there, with a worker beside them."""

import ast
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from perdure.api import registering
from perdure.engine.registry import Registry

from tests.support.workerproc import working

GUIDES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"(?<! -->\n)^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: Path) -> list[tuple[str, int]]:
    """Each block and the line on which it begins."""
    text = guide.read_text()
    return [(found[1], text.count("\n", 0, found.start(1))) for found in BLOCK.finditer(text)]


async def run(block: str, line: int, guide: Path, names: dict[str, Any]) -> None:
    code = compile("\n" * line + block, str(guide), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if blocks(guide)], ids=lambda guide: guide.stem)
async def test_a_guide_says_what_happens(db: str, guide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block is the module that program and workers share. What it registers, other guides do not see."""
    registry = Registry()
    monkeypatch.setattr(registering, "default_registry", registry)
    (first, line), *program = blocks(guide)
    module = ModuleType(f"guide_{guide.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    await run(first, line, guide, vars(module))
    async with working(db, registry, namespace="default", slots=20, queues=("default", "mails")):
        for block, line in program:
            await run(block, line, guide, vars(module))
