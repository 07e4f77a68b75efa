"""The provider "existing": a cluster that KUBECONFIG names. It is used, and never changed, by `hack/cluster`."""

from collections.abc import Sequence
from pathlib import Path

from localcluster import build
from localcluster.console import Failure, Impossible, run, say
from localcluster.settings import Settings


class ExistingCluster:
    name = "existing"

    def __init__(self, settings: Settings, kubeconfig: Path) -> None:
        self._settings = settings
        self.kubeconfig = kubeconfig

    def up(self) -> None:
        say(f"using the cluster of {self.kubeconfig} ({self._version()})")

    def down(self) -> None:
        say(f"the cluster of {self.kubeconfig} is not ours: nothing is removed")

    def is_up(self) -> bool:
        self._version()
        return True

    def status(self) -> bool:
        try:
            print(f"cluster of {self.kubeconfig}: {self._version()}")
        except Failure as failure:
            print(failure)
            return False
        return True

    def load_image(self, archives: Sequence[Path]) -> None:
        names = ", ".join(archive.name for archive in archives)
        raise Impossible(
            f"a cluster that is not ours pulls its images from a registry: push {names} to one "
            "(`skopeo copy docker-archive:FILE docker://REGISTRY/NAME:TAG`) and give its name there to the chart"
        )

    def signal(self, container: str, signal: str) -> None:
        raise Impossible("a signal can reach a container from outside only in a cluster of hack/cluster's own")

    def _version(self) -> str:
        kubectl = build.tool(self._settings, "kubectl")
        try:
            answer = run([kubectl, f"--kubeconfig={self.kubeconfig}", "--request-timeout=10s", "version"])
        except Failure as failure:
            raise Failure(f"the cluster of {self.kubeconfig} does not answer: {failure}") from None
        return answer.strip().splitlines()[-1]
