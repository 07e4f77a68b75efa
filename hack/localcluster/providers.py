"""Chooses where the cluster comes from: the one that KUBECONFIG names, else kind, else this machine itself."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from localcluster.console import Failure, Impossible
from localcluster.existing import ExistingCluster
from localcluster.kind import KindCluster
from localcluster.local import LocalCluster
from localcluster.settings import Settings


class Provider(Protocol):
    """What `hack/cluster` can do with a cluster, wherever it comes from."""

    name: str

    @property
    def kubeconfig(self) -> Path: ...

    def up(self) -> None:
        """Return when pods can run. A cluster that is up already is left alone."""

    def down(self) -> None:
        """Remove the cluster if it is ours. It need not be whole, or there at all."""

    def status(self) -> bool:
        """Print how it is; True when it can be used."""

    def is_up(self) -> bool:
        """Whether it can be used right now."""

    def load_image(self, archives: Sequence[Path]) -> None:
        """Make the images in these docker archives available to pods."""

    def signal(self, container: str, signal: str) -> None:
        """Send a signal (KILL, STOP, …) to the main process of the container with this id, from outside of it."""


def choose(settings: Settings, kubeconfig: str | None = None, env: Mapping[str, str] = os.environ) -> Provider:
    """The first way that is open on this machine; raises Impossible with why each one is closed.

    PERDURE_CLUSTER_PROVIDER (kind or local) leaves only that one.
    """
    ours: list[KindCluster | LocalCluster] = [KindCluster(settings), LocalCluster(settings)]
    given = kubeconfig or env.get("KUBECONFIG")
    if given and Path(given).absolute() not in [provider.kubeconfig for provider in ours]:
        if os.pathsep in given:
            raise Failure("KUBECONFIG names several files: name the one of the cluster to use")
        return ExistingCluster(settings, Path(given).expanduser())
    if wish := env.get("PERDURE_CLUSTER_PROVIDER"):
        ours = [provider for provider in ours if provider.name == wish]
        if not ours:
            raise Failure(f"PERDURE_CLUSTER_PROVIDER is kind or local, not {wish}")
    if settings.state.exists():
        # Started before, perhaps when there was no container engine: `down` must find it.
        ours.sort(key=lambda provider: provider.name != LocalCluster.name)
    closed = ["KUBECONFIG names none"]
    for provider in ours:
        reason = provider.unavailable()
        if reason is None:
            return provider
        closed.append(f"{provider.name}: {reason}")
    raise Impossible(f"this machine can carry no Kubernetes cluster ({'; '.join(closed)})")
