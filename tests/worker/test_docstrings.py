"""The examples in the docstrings of the public API, as the reference shows them."""

import ast
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.testing import Environment

from tests.support.mdblocks import ROOT, Block, blocks, runner_of
from tests.support.workerproc import working

PAGES = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))
EXAMPLES = [block for page in PAGES for block in blocks(page) if runner_of(block)]

shop = Registry()


@perdure.step(registry=shop)
async def reserve(order: str) -> str:
    return order


@perdure.step(registry=shop)
async def reserve_in_both(order: str) -> str:
    return order


@perdure.workflow(registry=shop)
async def process_order(order: str, cents: int) -> str:
    return order


@perdure.workflow(registry=shop)
async def index(document: str) -> str:
    return document


@perdure.workflow(registry=shop)
async def report(region: str) -> str:
    return region


@perdure.workflow
async def remind(name: str) -> str:
    """In the registry that an environment of tests has."""
    await perdure.sleep(timedelta(days=30))
    return "reminded"


NAMES: dict[str, Any] = {
    "Environment": Environment,
    "document": "a.txt",
    "index": index,
    "order": "1001",
    "perdure": perdure,
    "process_order": process_order,
    "remind": remind,
    "report": report,
    "reserve": reserve,
    "reserve_in_both": reserve_in_both,
    "timedelta": timedelta,
}
"""What the examples speak of."""


def in_a_body(text: str) -> bool:
    """Whether it awaits calls of `perdure` itself: those of the body of a workflow."""
    return "await perdure." in text


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"{block.page.stem}-{block.line}")
async def test_an_example_in_a_docstring_works(db: str, block: Block) -> None:
    names = {**NAMES, "url": db, "__name__": "docs"}
    code = compile(
        block.text.replace("postgresql://…", db), str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )

    async def example() -> None:
        found = eval(code, names)
        if found is not None:
            await found

    body = perdure.workflow(name=f"docs.example-{block.page.stem}-{block.line}", registry=shop)(example)
    async with working(db, shop, namespace="default"), perdure.Client() as client:
        await (client.run(body) if in_a_body(block.text) else example())


def test_there_are_examples() -> None:
    assert {Path(each.page).stem for each in EXAMPLES} >= {"client", "versions", "queues-and-schedules"}
