"""What charts' pages and runbooks tell to do with kubectl and Helm, on an API server without pods."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import helm
from tests.support.controlplane import RunningControlPlane
from tests.support.crds import established
from tests.support.mdblocks import MANIFEST, ROOT, RUNBOOK, Block, blocks, marked, pages, runner_of
from tests.support.terminal import Terminal

EVERY = [block for page in pages() for block in blocks(page)]
POD = {"kind": "Pod", "spec": {"containers": [{"name": "worker", "image": "example.com/worker:1"}]}}


@pytest.fixture(scope="module")
def empty() -> Iterator[RunningControlPlane]:
    """An API server that knows nothing of us."""
    with RunningControlPlane(controllers=False) as plane:
        yield plane


def terminal(plane: RunningControlPlane, folder: Path) -> Terminal:
    """As administrator, in the clone."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, program in (("helm", helm.binary()), ("kubectl", plane.program)):
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(program)
    path = subprocess.run(["bash", "-c", "echo $PATH"], capture_output=True, text=True, check=True).stdout.strip()
    return Terminal(ROOT, {"KUBECONFIG": str(plane.kubeconfig), "PATH": f"{tools}:{path}"})


def test_the_charts_are_installed_and_removed_as_their_pages_say(empty: RunningControlPlane, tmp_path: Path) -> None:
    install, adopt, remove = marked("charts", "charts/perdure-crds/README.md")
    (both,) = marked("charts", "charts/perdure/README.md")
    shell = terminal(empty, tmp_path)

    empty.kubectl("apply", "-f", ROOT / "crds")  # from before the chart: Helm refuses what it does not own
    assert "invalid ownership metadata" in shell.ask(install.text).stderr
    shell.run(adopt)
    shell.run(install)
    assert "STATUS: deployed" in shell.ask("helm status perdure-crds --namespace perdure-system").stdout
    established(empty)
    shell.run(remove)
    assert empty.kubectl("get", "crd", "--output=name") == ""

    shell.run(both)
    established(empty)
    found = empty.kubectl("get", "deployments", "--namespace=perdure-system", "--output=name")
    assert found == "deployment.apps/perdure-operator\n"


def test_resources_on_pages_are_taken_by_the_server(definitions: RunningControlPlane) -> None:
    namespace = definitions.new_namespace()
    for block in [each for each in EVERY if each.language == "yaml" and runner_of(each) == MANIFEST]:
        definitions.kubectl("apply", "--dry-run=server", f"--namespace={namespace}", "-f", "-", stdin=block.text)


@pytest.mark.parametrize("block", [each for each in EVERY if runner_of(each) == RUNBOOK], ids=lambda each: each.place)
def test_the_commands_of_runbooks_are_understood(
    definitions: RunningControlPlane, tmp_path: Path, block: Block
) -> None:
    """With objects under the names that a reader would put in."""
    namespace = definitions.new_namespace()
    # No pod is taken before its account is there, which the controllers make in their own time.
    definitions.service_account_token(namespace, "default")
    given = {"NAMESPACE": namespace, "POOL": "pool", "POD": "pod", "NAME": "run"}
    pod = {"apiVersion": "v1", **POD, "metadata": {"name": "pod"}}
    pool = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "pool"}}
    pool |= {"spec": {"modules": ["flows"], "template": {"spec": POD["spec"]}}}
    run = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "run"}}
    run |= {"spec": {"workflow": "orders.process_order"}}
    for each in (pod, pool, run):
        made = ["create", f"--namespace={namespace}", "-f", "-"]
        definitions.kubectl(*made, stdin=yaml.safe_dump(each))
    text = re.sub(r"\b(NAMESPACE|POOL|POD|NAME)\b", lambda found: given[found[0]], block.text)
    done = terminal(definitions, tmp_path).ask(text)
    assert done.returncode == 0, done.stderr
