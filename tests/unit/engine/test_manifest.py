"""What a process has, as a document, and what is different between two."""

from dataclasses import dataclass
from typing import Any

import pytest
from perdure.api import step, workflow
from perdure.engine import manifest
from perdure.engine.manifest import compare
from perdure.engine.registry import Registry
from perdure.errors import ConfigurationError, RegistrationError
from perdure.model.versions import VersionPolicy, WorkflowVersion
from pydantic import BaseModel


@dataclass
class Line:
    item: str


class Order(BaseModel):
    id: str
    lines: list[Line] = []


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @workflow(name="shop.order", registry=registry, version_policy="auto")
    async def order(order: Order, line: Line, urgent: bool = False) -> None: ...

    @workflow(name="shop.mail", registry=registry)
    async def mail(*to: str, **headers: int) -> None: ...

    @step(name="charge", registry=registry)
    async def charge(anything, amount: int) -> int:
        return amount

    return registry


def test_the_workflows_of_a_version_have_their_policy_or_the_default(registry: Registry) -> None:
    mail, order = registry.workflows["shop.mail"], registry.workflows["shop.order"]
    assert manifest.versions(registry, VersionPolicy.PATCHED) == (
        WorkflowVersion("shop.mail", mail.source_hash, VersionPolicy.PATCHED),
        WorkflowVersion("shop.order", order.source_hash, VersionPolicy.AUTO),
    )


def test_the_document_says_hash_policy_and_the_schema_of_the_input(registry: Registry) -> None:
    found = manifest.document(registry, VersionPolicy.PINNED)
    assert found["format"] == 1
    order = found["workflows"]["shop.order"]
    assert order["source_hash"] == registry.workflows["shop.order"].source_hash
    assert order["version_policy"] == "auto"
    schema = order["input"]
    assert (schema["type"], schema["required"]) == ("object", ["order", "line"])
    assert schema["properties"]["urgent"]["type"] == "boolean"
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert schema["properties"]["line"] == {"$ref": "#/$defs/Line"}
    assert set(schema["$defs"]) == {"Order", "Line"}
    assert found["workflows"]["shop.mail"]["input"]["properties"]["to"]["type"] == "array"
    assert found["workflows"]["shop.mail"]["input"]["required"] == []
    assert found["steps"]["charge"]["input"]["properties"]["amount"]["type"] == "integer"
    assert found["steps"]["charge"]["input"]["properties"]["anything"] == {}


def test_an_argument_without_a_schema_may_be_anything() -> None:
    registry = Registry()

    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            from pydantic_core import core_schema

            return core_schema.no_info_plain_validator_function(lambda value: value)

    Odd.__module__ = __name__
    globals()["Odd"] = Odd

    @workflow(name="w", registry=registry)
    async def flow(odd: Odd, n: int) -> None: ...  # type: ignore[valid-type]

    schema = manifest.input_schema(registry.workflows["w"])
    assert schema["properties"]["odd"] == {}
    assert schema["properties"]["n"]["type"] == "integer"


def test_an_unknown_policy_is_refused_when_it_is_registered() -> None:
    with pytest.raises(RegistrationError, match="version_policy is one of pinned, auto, patched, not 'newest'"):

        @workflow(name="w", registry=Registry(), version_policy="newest")  # type: ignore[arg-type]
        async def flow() -> None: ...


def entry(source: str | None = "a", policy: str = "pinned", given: object = None) -> dict[str, Any]:
    return {"source_hash": source, "version_policy": policy, "input": given}


def document(steps: dict[str, Any] | None = None, **workflows: dict[str, Any]) -> dict[str, Any]:
    return {"format": 1, "workflows": workflows, "steps": steps or {}}


@pytest.mark.parametrize(
    ("before", "now", "sentence", "stays"),
    [
        (entry(), entry("b"), "has changed; its runs stay with the version that began them", True),
        (entry(), entry("b", "auto"), "has changed; its runs stay", True),
        (entry(), None, "is gone", True),
        (entry(None), entry(None), "has no source that can be read", True),
        (entry(policy="patched"), entry("b", "patched"), "behind a patch", False),
        (entry(policy="patched"), entry(policy="auto"), "is auto now, it was patched", False),
        (None, entry(), "is new", False),
        (entry(), entry(given={"type": "object"}), "takes another input", False),
    ],
)
def test_each_difference_is_a_sentence_and_says_whether_runs_stay(
    before: dict[str, Any] | None, now: dict[str, Any] | None, sentence: str, stays: bool
) -> None:
    found = compare(document(**({"w": before} if before else {})), document(**({"w": now} if now else {})))
    assert any(sentence in str(each) and str(each).startswith("w: ") for each in found)
    assert any(each.stays for each in found) is stays


def test_a_step_that_is_gone_or_takes_another_input_is_told_and_holds_nothing_up() -> None:
    before = document({"a": {"input": 1}, "b": {"input": 1}, "c": {"input": 1}})
    found = compare(before, document({"b": {"input": 2}, "c": {"input": 1}, "d": {"input": 1}}))
    assert [str(each).split(":")[0] for each in found] == ["step a", "step b"]
    assert ("is gone" in str(found[0]), "takes another input" in str(found[1])) == (True, True)
    assert not any(each.stays for each in found)


def test_without_differences_there_are_none(registry: Registry) -> None:
    found = manifest.document(registry, VersionPolicy.PINNED)
    assert compare(found, found) == []


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {},
        {"format": 2, "workflows": {}},
        {"format": 1},
        {"format": 1, "workflows": {"w": 1}},
        {"format": 1, "workflows": {}},
    ],
)
def test_what_is_no_manifest_of_this_format_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="manifest"):
        compare(given, document())
