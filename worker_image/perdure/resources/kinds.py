"""The kinds of the group, as data: names, columns, subresources and the models of spec and status.

`crdgen` writes CRDs and the reference from this; the operator takes its API paths from it. A new kind is an entry
here and its models.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic.config import JsonDict

from perdure.resources import workerpool, workflow, workflow_status, workflowsignal
from perdure.resources.common import GROUP, VERSION, Model
from perdure.resources.markers import merge, rule
from perdure.resources.workerpool_status import WorkerPoolStatus


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. `wide` ones need `-o wide`."""

    name: str
    type: str
    path: str
    description: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The fields behind the scale subresource."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One custom resource."""

    kind: str
    plural: str
    singular: str
    short: str
    description: str
    spec: type[Model]
    status: type[Model]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    rules: JsonDict | None = None
    scale: Scale | None = None

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of the resource on the API server; without a namespace that of all namespaces."""
        parts = ["/apis", GROUP, VERSION]
        parts += [] if namespace is None else ["namespaces", namespace]
        parts += [self.plural, *([] if name is None else [name]), *([] if subresource is None else [subresource])]
        return "/".join(parts)


READY_REASON = '.status.conditions[?(@.type=="Ready")].reason'
AGE = Column("Age", "date", ".metadata.creationTimestamp", "Time since it was created.")

WORKFLOW = Kind(
    kind=workflow.KIND,
    plural="workflows",
    singular="workflow",
    short="pwf",
    description="One run of a workflow. Applying it starts the run; every finished step is kept in Postgres, so the "
    "run survives the death of whatever runs it. Deleting it cancels the run.",
    spec=workflow.WorkflowSpec,
    status=workflow_status.WorkflowStatus,
    columns=(
        Column("Status", "string", ".status.phase", "State in one word."),
        Column("Progress", "string", ".status.progress", "Steps that succeeded."),
        Column("Waiting", "string", ".status.waiting", "What it waits for."),
        AGE,
        Column("Pool", "string", ".spec.workerPool", "WorkerPool that runs it.", wide=True),
        Column("Worker", "string", ".status.worker.pod", "Pod that holds it now.", wide=True),
        Column("Version", "string", ".status.worker.version", "Version of the worker image.", wide=True),
        Column("Reason", "string", ".status.reason", "Why it is in this state.", wide=True),
    ),
    selectable=(".spec.workerPool", ".status.phase"),
    rules=merge(
        rule(workflow_status.REVISION_RULE, workflow_status.REVISION_MESSAGE, field=".status.revision"),
        rule(workflow.SAME_STEPS_RULE, workflow.SAME_STEPS_MESSAGE, field=".spec.steps", forbidden=True),
    ),
)

WORKER_POOL = Kind(
    kind=workerpool.KIND,
    plural="workerpools",
    singular="workerpool",
    short="pwp",
    description="Pods that run workflows: an image, the queues they serve, and how many of them there are.",
    spec=workerpool.WorkerPoolSpec,
    status=WorkerPoolStatus,
    columns=(
        Column("Ready", "integer", ".status.readyReplicas", "Pods that are ready."),
        Column("Desired", "integer", ".status.desired", "Pods wanted."),
        Column("Version", "string", ".status.currentVersion", "Version that new runs go to."),
        Column("Backlog", "integer", ".status.backlog", "Runs that are ready and not claimed."),
        AGE,
        Column("Reason", "string", READY_REASON, "Why it is ready or not.", wide=True),
    ),
    rules=rule(workerpool.NAME_RULE, workerpool.NAME_MESSAGE),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
)

DELIVERED = '.status.conditions[?(@.type=="Delivered")]'

WORKFLOW_SIGNAL = Kind(
    kind=workflowsignal.KIND,
    plural="workflowsignals",
    singular="workflowsignal",
    short="pwsig",
    description="A message to the run of a Workflow, for example an approval. Creating it sends the message, once; the "
    "run takes it with perdure.recv. It cannot be changed, and deleting it takes nothing back.",
    spec=workflowsignal.WorkflowSignalSpec,
    status=workflowsignal.WorkflowSignalStatus,
    columns=(
        Column("Workflow", "string", ".spec.workflowName", "Workflow whose run gets it."),
        Column("Topic", "string", ".spec.topic", "Topic under which the run takes it."),
        Column("Delivered", "string", f"{DELIVERED}.status", "Whether the run has it."),
        AGE,
        Column("Reason", "string", f"{DELIVERED}.reason", "Why it is delivered or not.", wide=True),
    ),
)

KINDS: tuple[Kind, ...] = (WORKFLOW, WORKER_POOL, WORKFLOW_SIGNAL)
