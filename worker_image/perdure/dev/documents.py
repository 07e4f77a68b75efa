"""The YAML that `perdure dev` is given: the same files that `kubectl apply` takes, read and checked the same way.

Knows the kinds Workflow and WorkerPool and leaves everything else to a cluster. Raises `InvalidResource` with file,
document and path of the field, in the words that the operator would use.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from perdure.errors import InvalidResource
from perdure.resources.acceptance import Accepted, Rejected, validate_worker_pool, validate_workflow
from perdure.resources.common import API_VERSION, GROUP
from perdure.resources.workerpool import KIND as WORKER_POOL
from perdure.resources.workerpool import WorkerPoolResource
from perdure.resources.workflow import KIND as WORKFLOW
from perdure.resources.workflow import WorkflowResource
from perdure.resources.workflowsignal import KIND as WORKFLOW_SIGNAL

SUFFIXES = (".yaml", ".yml")
DEFAULT_NAMESPACE = "default"

K = TypeVar("K")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Documents:
    """What a set of files asks for. `ignored` says what was passed over: kinds that only a cluster knows, and files
    beside the given one that cannot be read."""

    workflows: tuple[WorkflowResource, ...]
    pools: tuple[WorkerPoolResource, ...]
    ignored: tuple[str, ...] = ()

    def pool(self, name: str) -> WorkerPoolResource | None:
        """The pool of that name."""
        return next((pool for pool in self.pools if pool.metadata.name == name), None)


def read(target: Path) -> Documents:
    """Read a file, or all YAML files of a folder.

    The workflows of a single file are run with the pools of all files in its folder, as the files of one application
    usually stand beside each other; the other workflows there are left alone.
    """
    if not target.exists():
        raise InvalidResource(f"{target}: no such file or folder")
    files = [target] if target.is_file() else _yaml_files(target)
    if not files:
        raise InvalidResource(f"{target}: no {' or '.join(SUFFIXES)} file in this folder")
    found = _sort(_objects(files))
    if not found.workflows:
        raise InvalidResource(f"{target}: no Workflow of {API_VERSION} in it")
    missing = {workflow.spec.worker_pool for workflow in found.workflows} - {pool.metadata.name for pool in found.pools}
    if target.is_file() and missing:
        for path in _yaml_files(target.parent):
            if path != target:
                found = _take_pools(found, path, missing)
    return found


def _take_pools(found: Documents, path: Path, names: set[str]) -> Documents:
    """With the pools of these names in the file at `path`; what is wrong with it is nobody's business but noted."""
    try:
        beside = _sort(_objects([path]))
    except InvalidResource as error:
        return replace(found, ignored=(*found.ignored, error.message))
    taken = [pool for pool in beside.pools if pool.metadata.name in names and found.pool(pool.metadata.name) is None]
    return replace(found, pools=(*found.pools, *taken))


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _objects(files: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """Each document with the place it stands at, for messages."""
    for path in files:
        try:
            documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InvalidResource(f"{path}: not YAML: {error}") from error
        for number, document in enumerate(documents, 1):
            if document is not None:
                yield (str(path) if len(documents) == 1 else f"{path}, document {number}"), document


def _sort(objects: Iterable[tuple[str, Any]]) -> Documents:
    """Check each document and put it where it belongs."""
    workflows: dict[str, WorkflowResource] = {}
    pools: dict[str, WorkerPoolResource] = {}
    ignored = []
    for place, obj in objects:
        match _kind(place, obj):
            case "Workflow":
                workflow = _accept(place, validate_workflow(_named(obj)))
                _put(workflows, f"Workflow {workflow.metadata.namespace}/{workflow.metadata.name}", workflow, place)
            case "WorkerPool":
                pool = _accept(place, validate_worker_pool(obj))
                _put(pools, f"WorkerPool {pool.metadata.name}", pool, place)
            case other:
                ignored.append(f"{place}: {other}")
    return Documents(tuple(workflows.values()), tuple(pools.values()), tuple(ignored))


def _kind(place: str, obj: Any) -> str:
    if not isinstance(obj, Mapping) or not isinstance(obj.get("kind"), str) or "apiVersion" not in obj:
        raise InvalidResource(f"{place}: not a Kubernetes object: it needs apiVersion and kind")
    version, kind = str(obj["apiVersion"]), str(obj["kind"])
    if version == API_VERSION:
        if kind in (WORKFLOW, WORKER_POOL):
            return kind
        if kind == WORKFLOW_SIGNAL:
            return f"{kind}, which needs an operator (here perdure.Client.send does the same)"
        raise InvalidResource(f"{place}: kind {kind} is not known; there are {WORKFLOW} and {WORKER_POOL}")
    if version.split("/", maxsplit=1)[0] == GROUP:
        raise InvalidResource(f"{place}: apiVersion {version} is not known; this program knows {API_VERSION}")
    return f"{kind} of {version}"


def _named(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an API server would fill in: namespace, generation, a name where `generateName` asks for one, and a UID.

    The UID follows from the name, so that a run in a kept database goes on when the same file is given again.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return obj
    filled = {"namespace": DEFAULT_NAMESPACE, "generation": 1, **metadata}
    if "name" not in filled and isinstance(filled.get("generateName"), str):
        filled["name"] = f"{filled['generateName']}{secrets.token_hex(3)}"
    filled["uid"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{filled['namespace']}/{filled.get('name', '')}"))
    return {**obj, "metadata": filled}


def _accept(place: str, answer: Accepted[R] | Rejected) -> R:
    if isinstance(answer, Rejected):
        raise InvalidResource(f"{place}: {answer.message} ({answer.reason})")
    return answer.resource


def _put(target: dict[K, R], key: K, resource: R, place: str) -> None:
    if key in target:
        raise InvalidResource(f"{place}: {key} is there twice")
    target[key] = resource


class _Loader(yaml.SafeLoader):
    """Reads what JSON can say: an instant stays the text that was written, as for an API server."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def module_paths(target: Path, extra: Sequence[Path]) -> list[Path]:
    """Where workflow modules are looked for: what was asked for, the folder of the file, the current folder."""
    own = target if target.is_dir() else target.parent
    paths = [*extra, own, Path()]
    return list(dict.fromkeys(path.resolve() for path in paths))
