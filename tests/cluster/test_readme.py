"""The README's tour and the end of the tutorial, command by command, in a namespace of the installed release."""

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.release import Release
from tests.support.helm import ROOT
from tests.support.mdblocks import blocks, marked
from tests.support.terminal import Terminal

SECONDS = 180.0
LEFT_BEHIND = (
    *("workflows/order-1001", "workflows/order-1002", "workflows/order-1003", "workerpools/orders"),
    *("workflows/table-1", "workerpools/cafe", "configmaps/cafe-flows"),
)
BLOCK = re.compile(r"^<!-- test: (\w+) -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(kind: str) -> list[str]:
    """What stands after `$ ` in the blocks of that kind, with the lines that a here-document adds."""
    found: list[str] = []
    for name, text in BLOCK.findall((ROOT / "README.md").read_text()):
        if name == kind:
            found += [part.rstrip("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE) if part.strip()]
    return found


@pytest.fixture
def env(release: Release, tmp_path: Path) -> Iterator[dict[str, str]]:
    """As the README's reader has it: a kubeconfig whose namespace is one that Perdure serves."""
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(release.kubectl.env["KUBECONFIG"], kubeconfig)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(release.cluster.program)
    found = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    set_namespace = ["kubectl", "config", "set-context", "--current", f"--namespace={release.namespace}"]
    subprocess.run(set_namespace, env=found, check=True, capture_output=True)
    yield found
    for kind in LEFT_BEHIND:
        subprocess.run(["kubectl", "delete", kind, "--ignore-not-found"], env=found, check=False, capture_output=True)


def run(command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


def watch(command: str, env: dict[str, str], until: str) -> str:
    """A command that a reader would end with Ctrl-C once they have seen it; what it showed."""
    shown = ""
    deadline = time.monotonic() + SECONDS
    argv = ["bash", "-c", f"exec {command}"]
    with (
        subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            while until not in shown:
                assert time.monotonic() < deadline, f"{command} has not shown {until}: {shown}"
                if selector.select(timeout=1.0):
                    line = os.read(process.stdout.fileno(), 65536).decode()
                    assert line, f"{command} has ended: {shown}"
                    shown += line
        finally:
            process.kill()
    return shown


def test_the_tour(env: dict[str, str]) -> None:
    tour = commands("tour")
    assert len(tour) > 10
    shown: dict[str, str] = {}
    for command in tour:
        if command.endswith("--watch"):
            shown[command] = watch(command, env, "Succeeded")
        else:
            done = run(command, env)
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
            shown[command] = done.stdout
    assert '"order_id":"1001"' in next(text for command, text in shown.items() if "{.status.output}" in command)
    assert "send_receipt" in next(text for command, text in shown.items() if "describe" in command)
    assert "with" in next(text for command, text in shown.items() if "explain" in command)


def test_a_mistake_is_refused_with_a_sentence(env: dict[str, str]) -> None:
    (command,) = commands("refused")
    done = run(command, env)
    assert done.returncode != 0
    assert "needs names a step that is not in this list: see the needs of" in done.stderr
    assert "ship" in done.stderr


def test_the_cluster_of_the_demo_is_found(env: dict[str, str], release: Release, tmp_path: Path) -> None:
    """Where it is ours; of another one the reader has the kubeconfig already. The namespace is set in a copy."""
    (block,) = marked("kubeconfig", "README.md")
    (tell, _), (choose, _) = block.commands
    if "KUBECONFIG" not in os.environ:
        found = run(f"{tell} && echo $KUBECONFIG", {**env, "KUBECONFIG": ""})
        assert Path(found.stdout.strip()).is_file(), found.stderr
    done = run(f"{choose} && kubectl config view --minify -o jsonpath='{{..namespace}}'", env)
    assert done.stdout.endswith("perdure-demo")


def test_the_end_of_the_tutorial(env: dict[str, str], release: Release, tmp_path: Path) -> None:
    """With the files that the reader has made on the way."""
    folder = tmp_path / "cafe"
    folder.mkdir()
    terminal = Terminal(folder, env)
    for file in [block for block in blocks(ROOT / "docs" / "tutorial.md") if block.kind == "file"]:
        terminal.run(file)
    pool = folder / "pool.yaml"
    assert "perdure-worker:dev" in pool.read_text()
    pool.write_text(pool.read_text().replace("perdure-worker:dev", release.worker_image))
    (block,) = marked("tutorial", "docs/tutorial.md")
    said = terminal.run(block)
    assert "Ada has a cup of tea for 300 cents" in said
    assert "brew" in said
