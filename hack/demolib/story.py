"""The demo from its first act to its last, and whether all that it promises was seen."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster.console import Failure, say, wait_until

from demolib import order, proof, show
from demolib.install import NAMESPACE, Installation
from demolib.kubectl import Kubectl
from demolib.proof import Proof

KILLER = Path(__file__).with_name("kill_worker.py")
KILL_IN_STEP = 2
"""Index of the step in which the worker is killed: two have finished by then, and some are still to come."""

POOL_SECONDS = 180.0
RUN_SECONDS = 120.0
"""Without a kill the run takes a quarter of a minute; a lease that has to run out adds half a minute."""

ASIDE = ThreadPoolExecutor(max_workers=1)

FENCE_SHIFT = 20
"""`revision` is fence · 2^20 + a number, so a higher fence is seen in the status: another claim."""


@dataclass
class Kill:
    """The kill, and what Postgres said right after it."""

    pod: str
    fence: int
    at: float
    before: Future[Proof]
    went_on_after: float | None = None
    went_on_in: str = ""


@dataclass
class Seen:
    """What the watch has seen of the run."""

    last: Any = None
    kill: Kill | None = None
    problems: list[str] = field(default_factory=list)


def tell(installation: Installation) -> list[str]:
    """Apply, watch, kill, go on, prove. Gives what was not as promised; empty when all was."""
    kubectl = installation.kubectl
    objects, name = order.objects(installation.worker)
    _workers(kubectl, objects[:-1])
    show.heading(f"An order Workflow, {name}; its worker is killed in the middle of a step")
    command = f"kubectl -n {NAMESPACE} apply -f examples/order/workflow.yaml  # as {name}"
    show.command(command, kubectl.apply(objects[-1:]))
    seen = _watch(kubectl, name)
    problems = [*seen.problems, *_prove(kubectl, name, seen)]
    _farewell(name)
    return problems


def _workers(kubectl: Kubectl, objects: list[Any]) -> None:
    show.heading("A WorkerPool: two pods that run the order example")
    pool = objects[-1]["metadata"]["name"]
    show.command(f"kubectl -n {NAMESPACE} apply -k examples/order  # with {order.PODS} pods", kubectl.apply(objects))
    started = time.monotonic()
    next_word = started + 5.0

    def ready() -> bool:
        nonlocal next_word
        status = kubectl.get("workerpool", pool).get("status", {})
        if time.monotonic() > next_word:
            next_word = time.monotonic() + 5.0
            why = next((c.get("message", "") for c in status.get("conditions", []) if c["type"] == "Ready"), "")
            say(f"{status.get('readyReplicas', 0)} of {order.PODS} worker pods ready: {why}")
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
        return conditions.get("Ready") == "True" and status.get("readyReplicas", 0) >= order.PODS

    wait_until("the worker pods", ready, seconds=POOL_SECONDS, interval=0.5)
    say(f"the worker pods are ready after {time.monotonic() - started:.1f}s")
    show.command(f"kubectl -n {NAMESPACE} get workerpools,pods", kubectl.run("get", "workerpools,pods"))


def _watch(kubectl: Kubectl, name: str) -> Seen:
    """Follow the run to its end; kill its worker on the way."""
    seen, live = Seen(), show.Live()
    with kubectl.watch("workflow", name) as changes:
        # The watch blocks when nothing comes: closing it from here ends it.
        follower = threading.Thread(target=lambda: _follow(kubectl, name, changes, seen, live), daemon=True)
        follower.start()
        follower.join(RUN_SECONDS)
    if not _finished(seen.last or {}):
        seen.problems.append(f"the run has not ended within {RUN_SECONDS:.0f}s")
    return seen


def _follow(kubectl: Kubectl, name: str, changes: Any, seen: Seen, live: show.Live) -> None:
    for workflow in changes:
        seen.last = workflow
        status = workflow.get("status", {})
        live.show(status)
        try:
            if seen.kill is None:
                seen.kill = _kill_if_it_is_time(kubectl, workflow)
            elif seen.kill.went_on_after is None:
                _went_on(seen.kill, status)
        except Failure as failure:
            seen.problems.append(str(failure))
            return
        if _finished(workflow):
            return


def _finished(workflow: Any) -> bool:
    conditions = workflow.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Finished" and condition["status"] == "True" for condition in conditions)


def _kill_if_it_is_time(kubectl: Kubectl, workflow: Any) -> Kill | None:
    status = workflow.get("status", {})
    step = next((step for step in status.get("steps", []) if step["index"] == KILL_IN_STEP), None)
    pod = status.get("worker", {}).get("pod")
    if step is None or step["phase"] != "Running" or not pod:
        return None
    killed = kubectl.run("exec", "--stdin", pod, "--", "python", "-", stdin=KILLER.read_text())
    at = time.monotonic()
    show.line(f"        ☠ SIGKILL in pod {pod}, {killed.strip()}")
    # Beside the watch: the look into Postgres takes a second, in which the run may already go on.
    before = ASIDE.submit(proof.read, kubectl, workflow["metadata"]["uid"])
    return Kill(pod, status["revision"] >> FENCE_SHIFT, at, before)


def _went_on(kill: Kill, status: Any) -> None:
    """Another claim that runs a step is progress; the status in between only says that the run is ready again."""
    running = any(step["phase"] == "Running" for step in status.get("steps", []))
    if status["revision"] >> FENCE_SHIFT > kill.fence and status.get("worker", {}).get("pod") and running:
        kill.went_on_after = time.monotonic() - kill.at
        kill.went_on_in = status["worker"]["pod"]
        where = "another pod" if kill.went_on_in != kill.pod else "a new container of the same pod"
        show.line(f"        goes on in {kill.went_on_in} ({where}) {kill.went_on_after:.1f}s after the kill")


def _prove(kubectl: Kubectl, name: str, seen: Seen) -> list[str]:
    show.heading("How it ended")
    show.command(
        f"kubectl -n {NAMESPACE} get workflow {name} -o wide", kubectl.run("get", "workflow", name, "-o", "wide")
    )
    show.command(f"kubectl -n {NAMESPACE} get workflow {name} -o yaml  # its status", _status(seen.last or {}))
    if seen.kill is None:
        return ["no worker was killed: the run was over before its third step was seen"]
    show.heading("The proof from Postgres: each finished step ran once")
    after = proof.read(kubectl, seen.last["metadata"]["uid"])
    show.line("right after the kill:")
    before = seen.kill.before.result()
    show.command("psql -f hack/demolib/proof.sql", before.table)
    show.line("at the end:")
    show.command("psql -f hack/demolib/proof.sql", after.table)
    interrupted, problems = proof.judge(before, after, seen.kill.fence)
    phase = (seen.last or {}).get("status", {}).get("phase")
    if phase != "Succeeded":
        problems.append(f"the run has ended as {phase}")
    if seen.kill.went_on_after is None:
        problems.append("nobody was seen to go on after the kill")
    else:
        show.line(f"From SIGKILL in {interrupted} to progress: {seen.kill.went_on_after:.1f}s")
    return problems


def _status(workflow: Any) -> str:
    import yaml

    return yaml.safe_dump(workflow.get("status", {}), sort_keys=False, width=110)


def _farewell(name: str) -> None:
    show.heading("Look further")
    show.line("export KUBECONFIG=$(hack/cluster kubeconfig)")
    show.line(f"kubectl -n {NAMESPACE} describe workflow {name}")
    show.line(f"kubectl -n {NAMESPACE} get workflows,workerpools,pods")
    show.line(f"kubectl -n {NAMESPACE} logs -l perdure.dev/pool --tail=20 --prefix")
    show.line("The README's tour goes on from here. `make demo-down` takes everything away.")
