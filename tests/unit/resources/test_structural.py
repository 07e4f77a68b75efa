"""What of a model becomes what in a structural schema, and what is refused."""

from typing import Annotated, Any, Literal

import pytest
from perdure.resources.common import Kube
from perdure.resources.markers import any_object, any_value, atomic, default_empty, literal_values, merge, rule
from perdure.resources.structural import Schema, SchemaError, structural
from pydantic import BaseModel, Field

Text = Annotated[str, Field(max_length=9)]


def convert(model: type[BaseModel]) -> Schema:
    return structural(model.model_json_schema(), "Kind.spec")


def field(annotation: Any, **options: Any) -> Schema:
    """The schema of one described field of this type."""

    class Holder(BaseModel):
        """Holds it."""

        it: annotation = Field(description="It.", **options)

    found: Schema = convert(Holder)["properties"]["it"]
    return found


class Inner(BaseModel):
    """An inner object."""

    size: int = Field(default=3, ge=0, le=9, description="Size.")


def test_references_are_inlined_and_the_fields_own_words_win() -> None:
    assert field(Inner) == {
        "description": "It.",
        "type": "object",
        "properties": {
            "size": {
                "description": "Size.",
                "type": "integer",
                "format": "int32",
                "default": 3,
                "minimum": 0,
                "maximum": 9,
            }
        },
    }


def test_an_optional_field_is_not_required_and_not_nullable() -> None:
    class Holder(BaseModel):
        """Holds it."""

        it: Text | None = Field(default=None, description="It.")

    assert convert(Holder) == {
        "description": "Holds it.",
        "type": "object",
        "properties": {"it": {"description": "It.", "type": "string", "maxLength": 9}},
    }


def test_an_optional_object_is_inlined_too() -> None:
    assert field(Inner | None, default=None)["properties"]["size"]["default"] == 3


def test_a_constant_is_an_enumeration() -> None:
    assert field(Literal["one"])["enum"] == ["one"]


def test_exclusive_bounds_of_whole_numbers_become_inclusive() -> None:
    found = field(Annotated[int, Field(gt=0, lt=10)])
    assert (found["minimum"], found["maximum"]) == (1, 9)


def test_a_number_without_a_small_maximum_has_64_bits() -> None:
    assert field(Annotated[int, Field(ge=0)])["format"] == "int64"


def test_rules_on_a_type_and_on_a_field_add_up() -> None:
    on_type = Annotated[Text, Kube(rule("a", "A"))]
    found = field(Annotated[on_type, Kube(rule("b", "B"))])
    assert [each["message"] for each in found["x-kubernetes-validations"]] == ["A", "B"]


def test_a_rule_for_new_objects_is_skipped_as_soon_as_there_is_an_old_one() -> None:
    found = rule("self > 1", "no", at_create=True)["x-kubernetes-validations"]
    assert found == [{"rule": "oldSelf.hasValue() || (self > 1)", "message": "no", "optionalOldSelf": True}]


def test_a_list_and_a_map_of_free_values() -> None:
    values = Annotated[list[Any], Field(max_length=3), Kube(merge(atomic(), {"items": any_value()}))]
    assert field(values)["items"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert field(Annotated[dict[str, Any], Kube(any_object())])["type"] == "object"


def test_free_values_are_checked_to_the_given_depth() -> None:
    found = literal_values("p", 1)
    assert found["pattern"] == "p"
    assert found["items"] == found["additionalProperties"] == literal_values("p", 0)
    assert "items" not in literal_values("p", 0)


def test_a_default_object_lets_the_defaults_inside_apply() -> None:
    assert field(Annotated[Inner, Kube(default_empty())], default_factory=Inner)["default"] == {}


class Loop(BaseModel):
    """Contains itself."""

    inner: "Loop | None" = Field(default=None, description="Loop.")


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Loop, "contains itself"),
        (Text | Annotated[int, Field(ge=0)], "union"),
        (float, "number"),
        (str, "without maxLength"),
        (int, "without minimum"),
        (list[Text], "maxItems"),
        (set[Text], "uniqueItems"),
        (tuple[Text, Text], "prefixItems"),
        (dict[str, Text], "maxProperties"),
        (Any, "no type"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_path(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=rf"^Kind\.spec\.it.*{words}"):
        field(annotation)


def test_a_field_without_a_description_is_refused() -> None:
    class Holder(BaseModel):
        """Holds it."""

        it: Text

    with pytest.raises(SchemaError, match="no description"):
        convert(Holder)


def test_two_pieces_that_say_the_same_thing_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="given twice"):
        merge(atomic(), atomic())
