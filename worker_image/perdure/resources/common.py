"""What all kinds share: group and version, the base model, metadata, durations, and errors that name a path.

Used by every other module here. Keeps one promise: a value that the API server admits and a value that these
models admit are the same, so a resource is refused once, at apply, with one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from perdure.errors import InvalidResource
from perdure.resources.markers import VALIDATIONS, merge, rule

GROUP = "perdure.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "perdure"

LABEL_MAX = 63
"""Longest DNS label, label value and step name: Kubernetes' own limit, so that any of them can become a label."""

POOL_NAME_MAX = 52
"""A pool's name plus `-` and a version of ten characters is the name of a Deployment and of its label: 63."""

REGISTERED_NAME_MAX = 253
"""Longest registered workflow or step name: that of a Kubernetes name, ample for `package.module.function`."""

DURATION_MAX = 32
"""Longest duration text; the longest that the pattern allows has 31 characters."""


class Model(BaseModel):
    """Base of everything below a spec: camelCase in YAML, snake_case here, unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
    )


class Kube:
    """Schema pieces (see `markers`) on a type or a field; unlike `json_schema_extra` they add up."""

    def __init__(self, *pieces: JsonDict) -> None:
        self.extra = merge(*pieces)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Called by pydantic when it writes the schema of the annotated type."""
        schema = dict(handler(core))
        rules = [*schema.get(VALIDATIONS, []), *_rules(self.extra)]
        schema.update(self.extra)
        if rules:
            schema[VALIDATIONS] = rules
        return schema


def _rules(extra: JsonDict) -> list[Any]:
    found = extra.get(VALIDATIONS, [])
    return found if isinstance(found, list) else []


# -- durations

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
DURATION_PATTERN = r"^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,10}ms)?$"
"""Each unit once, largest first. The digits bound the sum at 44 years, which every clock and database can add."""

DURATION_MESSAGE = "a duration looks like 90s, 15m, 1h30m or 2d: whole numbers of d, h, m, s, ms, largest first"
POSITIVE_MESSAGE = "must be longer than zero"


def parse_duration(text: str) -> timedelta:
    """The length of a duration such as `1h30m`. Raises `InvalidResource` with the sentence that users see."""
    if not text or len(text) > DURATION_MAX or not re.fullmatch(DURATION_PATTERN[1:-1], text):
        raise InvalidResource(f"{text!r}: {DURATION_MESSAGE}")
    parts = re.findall(r"([0-9]+)(ms|[dhms])", text)
    return timedelta(**{_UNITS[unit]: int(number) for number, unit in parts})


def _is_duration(text: str) -> str:
    try:
        parse_duration(text)
    except InvalidResource as error:
        raise ValueError(DURATION_MESSAGE) from error
    return text


def _is_positive(text: str) -> str:
    if not re.search("[1-9]", text):
        raise ValueError(POSITIVE_MESSAGE)
    return text


DURATION_RULE = f"self.matches('{DURATION_PATTERN}')"

Duration = Annotated[
    str,
    Field(min_length=1, max_length=DURATION_MAX),
    AfterValidator(_is_duration),
    Kube(rule(DURATION_RULE, DURATION_MESSAGE)),
]
"""A length of time as text, zero allowed."""

PositiveDuration = Annotated[
    Duration,
    AfterValidator(_is_positive),
    Kube(rule("self.matches('[1-9]')", POSITIVE_MESSAGE)),
]
"""A length of time as text, longer than zero."""


# -- names

LABEL_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_MESSAGE = "must be a DNS label: lower-case letters, digits and '-', with a letter or digit at both ends"


def is_label(text: str) -> bool:
    """Whether the text can be a DNS label, its length aside."""
    return re.fullmatch(LABEL_PATTERN[1:-1], text) is not None


def _is_label(text: str) -> str:
    if not is_label(text):
        raise ValueError(LABEL_MESSAGE)
    return text


def _no_duplicates(names: list[str]) -> list[str]:
    again = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if again is not None:
        raise ValueError(f'Duplicate value: "{again}"')
    return names


UNIQUE = AfterValidator(_no_duplicates)
"""A list of names without duplicates; the schema says so by its list type."""

Label = Annotated[str, Field(min_length=1, max_length=LABEL_MAX), AfterValidator(_is_label)]
"""A name that can be a DNS label and a label value; the rule that says so to the API server stands at the field."""

PoolName = Annotated[str, Field(min_length=1, max_length=POOL_NAME_MAX), AfterValidator(_is_label)]


# -- resources as the API server hands them out


@dataclass(frozen=True, slots=True)
class Metadata:
    """The part of an object's metadata that the project looks at. Anything else in it is none of its business."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    created_at: datetime | None = None
    deleted_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> Metadata:
        """Reads `obj["metadata"]`; an object without a name is refused, everything else may be absent."""
        raw = obj.get("metadata")
        if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
            raise InvalidFields(obj.get("kind", "resource"), [Problem("metadata.name", "Required value")])
        return cls(
            name=raw["name"],
            namespace=str(raw.get("namespace") or ""),
            uid=str(raw.get("uid") or ""),
            generation=int(raw.get("generation") or 0),
            resource_version=str(raw.get("resourceVersion") or ""),
            created_at=_instant(raw.get("creationTimestamp")),
            deleted_at=_instant(raw.get("deletionTimestamp")),
            labels=dict(raw.get("labels") or {}),
            annotations=dict(raw.get("annotations") or {}),
            finalizers=tuple(raw.get("finalizers") or ()),
        )


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the path of the field as kubectl writes it, and what is wrong with it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidFields(InvalidResource):
    """A resource that the models refuse; `problems` lists every field with its path."""

    def __init__(self, kind: str, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems) or f"the {kind} cannot be read")
        self.problems = tuple(problems)


def problems_of(error: ValidationError, root: str) -> list[Problem]:
    """The problems of a pydantic error, in the words of the API server where it has words for them."""
    return [Problem(_path(root, item["loc"]), _sentence(item)) for item in error.errors(include_url=False)]


def _path(root: str, location: tuple[str | int, ...]) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path


def _sentence(item: Any) -> str:
    match item["type"]:
        case "missing":
            return "Required value"
        case "extra_forbidden":
            return "unknown field"
        case "value_error":
            return str(item["ctx"]["error"])
        case _:
            return str(item["msg"])
