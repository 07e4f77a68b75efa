"""`perdure manifest`: what the modules have, and what is different from what an earlier version had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.engine import manifest
from perdure.engine.manifest import Difference
from perdure.errors import ConfigurationError
from perdure.worker.main import load_modules
from perdure.worker.settings import load


def of_modules(modules: tuple[str, ...]) -> dict[str, Any]:
    """The manifest of these modules, or of those that the environment names. Raises `ConfigurationError`."""
    settings, _ = load()
    named = modules or settings.modules
    if not named:
        raise ConfigurationError("no modules: name them with --module, or in PERDURE_MODULES")
    return manifest.document(load_modules(named), settings.version_policy)


def text_of(found: Mapping[str, Any]) -> str:
    """As a file whose changes can be read."""
    return json.dumps(found, indent=2, sort_keys=True)


def compared(old: Path, found: Mapping[str, Any]) -> list[Difference]:
    """What is different from the manifest in a file. Raises `ConfigurationError` for a file that is none."""
    try:
        before = json.loads(old.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{old} cannot be read as a manifest: {error}") from error
    return manifest.compare(before, json.loads(json.dumps(found)))
