"""No block of code stands in a page that nothing runs; what needs no database is run here."""

import ast
import importlib.util
import re
import subprocess
from typing import Any

import perdure
import pytest
import yaml
from perdure.resources.acceptance import Accepted, validate_worker_pool, validate_workflow, validate_workflow_signal

from tests.support.mdblocks import (
    DOCSTRING,
    GUIDE,
    MAKE,
    MANIFEST,
    ROOT,
    RUNBOOK,
    RUNNERS,
    SQL,
    Block,
    blocks,
    is_guide,
    marked,
    pages,
    runner_of,
)

EVERY = [block for page in pages() for block in blocks(page)]
NAMESPACE = "default"
PLACES: dict[str, Any] = {
    "perdure": perdure,
    "client": perdure.Client("postgresql://nowhere"),
    "handle": perdure.Handle,
}
ELSEWHERE = {
    *("perdure.dev", "perdure.leaders", "perdure.runs", "perdure.start_workflow"),  # a group of resources, tables, SQL
    *("client.queues", "client.schedules"),  # of an object, not of its class
    *("handle.get_result", "handle.signal"),  # of those from whom readers come
}


def test_every_block_is_run_by_a_test() -> None:
    lost = [f"{block.place}: {block.language or 'no language'} {block.name}" for block in EVERY if not known(block)]
    assert not lost


def known(block: Block) -> bool:
    return runner_of(block) is not None


def test_every_fence_was_understood() -> None:
    """A block that the pattern does not find would be run by nobody, and missed by nobody."""
    for page in pages():
        fences = sum(line.lstrip().startswith("```") for line in page.read_text().splitlines())
        assert fences == 2 * len(blocks(page)), page


@pytest.mark.parametrize("runner", sorted({*RUNNERS.values(), DOCSTRING, GUIDE, MAKE, MANIFEST, RUNBOOK, SQL}))
def test_every_runner_is_there(runner: str) -> None:
    file, _, name = runner.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_runner_has_something_to_run() -> None:
    said = {block.name for block in EVERY if block.kind == "test"}
    assert said == set(RUNNERS)


def test_make_knows_what_pages_tell_to_make() -> None:
    for block in [each for each in EVERY if runner_of(each) == MAKE]:
        lines = [command for command, _ in block.commands] if block.language == "console" else block.text.splitlines()
        for line in lines:
            dry = f"make -n {line.removeprefix('make ')}"
            done = subprocess.run(["bash", "-c", dry], cwd=ROOT, capture_output=True, check=False)
            assert done.returncode == 0, f"{block.place}: {line}\n{done.stderr.decode()}"


def test_an_excerpt_is_of_its_file() -> None:
    """`examples/order/flows.py` in the README: every line of it that is no ellipsis, in the same order."""
    for block in marked("excerpt"):
        source = iter((ROOT / "examples/order/flows.py").read_text().splitlines())
        for line in block.text.splitlines():
            if line.strip() and line.strip() != "...":
                wanted = line.removesuffix(" ...").split("(")[0]
                assert any(found.split("(")[0] == wanted for found in source), f"{block.place}: {line}"


def manifests() -> list[tuple[Block, dict[str, Any]]]:
    found = []
    for block in EVERY:
        if block.language == "yaml" and runner_of(block) == MANIFEST:
            found += [(block, each) for each in yaml.safe_load_all(block.text)]
    return found


@pytest.mark.parametrize(("block", "manifest"), manifests(), ids=lambda each: getattr(each, "place", ""))
def test_a_resource_on_a_page_is_accepted(block: Block, manifest: dict[str, Any]) -> None:
    """By the checks of the operator: the same models as the definitions are made from."""
    named = {**manifest, "metadata": {"namespace": NAMESPACE, "uid": "u", "generation": 1, **manifest["metadata"]}}
    match manifest["kind"]:
        case "Workflow":
            assert isinstance(validate_workflow(named), Accepted)
        case "WorkerPool":
            assert isinstance(validate_worker_pool(named), Accepted)
        case "WorkflowSignal":
            assert isinstance(validate_workflow_signal(named), Accepted)
        case other:
            pytest.fail(f"{block.place}: nothing here knows a {other}")


def test_every_guide_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    guides = sorted(page.name for page in (ROOT / "docs" / "how-to").glob("*.md"))
    assert [name for name in guides if f"(how-to/{name})" not in index] == []


def test_code_in_sentences_names_what_there_is() -> None:
    """Of guides: `perdure.X`, `client.X` and `handle.X`."""
    lost = []
    for page in [each for each in pages() if is_guide(each) or each.name == "README.md"]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for code in re.findall(r"`([^`\n]+)`", text):
            for place, name in re.findall(r"(?<![\w/.])(perdure|client|handle)\.([a-zA-Z_]\w*)", code):
                if not (hasattr(PLACES[place], name) or f"{place}.{name}" in ELSEWHERE or is_module(place, name)):
                    lost.append(f"{page.name}: {code}")
    assert lost == []


def is_module(place: str, name: str) -> bool:
    return place == "perdure" and importlib.util.find_spec(f"perdure.{name}") is not None


def test_links_between_pages_lead_somewhere() -> None:
    lost = []
    for page in pages():
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (page.parent / target).exists():
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert not lost
