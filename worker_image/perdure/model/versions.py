"""Versions of code: what a worker says of each of its workflows, and which runs of earlier versions go on with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from perdure.errors import InvalidArgument


class VersionPolicy(StrEnum):
    """Which runs that earlier versions have begun go on with the present one."""

    PINNED = "pinned"
    """None: they stay with the version that first claimed them."""

    AUTO = "auto"
    """Those of versions in which the source of the workflow is the same."""

    PATCHED = "patched"
    """All: whatever was changed in the body since stands behind a `perdure.patch`."""


Policy = VersionPolicy | Literal["pinned", "auto", "patched"]
"""As it is said."""


def policy_of(value: Policy | None) -> VersionPolicy | None:
    """Raises `InvalidArgument` for what is no policy; None: as the settings of the worker say."""
    if value is None:
        return None
    try:
        return VersionPolicy(value)
    except ValueError:
        known = ", ".join(VersionPolicy)
        raise InvalidArgument(f"version_policy is one of {known}, not {value!r}") from None


@dataclass(frozen=True, slots=True)
class WorkflowVersion:
    """One workflow in one version. `source_hash` is None where the source cannot be read: equal to no other then."""

    workflow: str
    source_hash: str | None
    policy: VersionPolicy
