"""The release in the hands of its owner: rights that hold, two operators, a new password."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from demolib.kubectl import Kubectl
from localcluster.console import wait_until

from tests.cluster import release as installed
from tests.cluster.release import Release
from tests.support import helm

OPERATOR = f"system:serviceaccount:{installed.NAMESPACE}:{installed.NAME}-operator"
WORKER = f"system:serviceaccount:{installed.NAMESPACE}:perdure-worker"
# The kubelet brings a changed Secret into a pod within about a minute and a half.
ROTATION_SECONDS = 180


@pytest.mark.parametrize(
    ("account", "verb", "resource", "answer"),
    [
        (OPERATOR, "watch", "workflows.perdure.dev", "yes"),
        (OPERATOR, "patch", "workerpools.perdure.dev/status", "yes"),
        (OPERATOR, "create", "deployments.apps", "yes"),
        (OPERATOR, "update", "workflows.perdure.dev", "no"),
        (OPERATOR, "get", "secrets", "no"),
        (OPERATOR, "create", "pods", "no"),
        (WORKER, "patch", "workflows.perdure.dev/status", "yes"),
        (WORKER, "get", "workflows.perdure.dev", "no"),
        (WORKER, "update", "workflows.perdure.dev/status", "no"),
        (WORKER, "patch", "workflows.perdure.dev", "no"),
        (WORKER, "get", "secrets", "no"),
        (WORKER, "list", "pods", "no"),
    ],
)
def test_rights_on_a_real_api_server(account: str, verb: str, resource: str, answer: str, release: Release) -> None:
    assert can_i(release.kubectl, account, verb, resource) == answer
    elsewhere = release.cluster.kubectl("default")
    assert can_i(elsewhere, account, verb, resource) == "no", "a right outside of the watched namespaces"


def can_i(kubectl: Kubectl, account: str, verb: str, resource: str) -> str:
    kind, _, subresource = resource.partition("/")
    done = kubectl.ask("auth", "can-i", verb, kind, f"--subresource={subresource}", f"--as={account}")
    return done.stdout.strip().partition(" ")[0]


@pytest.fixture
def two_operators(release: Release) -> Iterator[None]:
    release.upgrade("--set=replicaCount=2")
    yield
    release.upgrade()


@pytest.mark.usefixtures("two_operators")
def test_a_second_operator_gets_ready_beside_the_leader(release: Release) -> None:
    """`helm upgrade --wait` has seen both ready. If readiness needed the lead, no rolling update would ever end."""
    assert release.kubectl.get(release.operator)["status"]["readyReplicas"] == 2


@pytest.fixture
def role(release: Release) -> Iterator[str]:
    """A role of this test's own, so that nobody else's connections break. Its password is "first"."""
    name = f"rotating_{secrets.token_hex(4)}"
    release.psql(f"CREATE ROLE {name} LOGIN PASSWORD 'first' IN ROLE perdure")
    yield name
    release.psql(f"DROP ROLE {name}")


@pytest.fixture
def second(release: Release, namespace: Kubectl, role: str) -> Iterator[Kubectl]:
    """Another installation, in a namespace of its own on the same database, which reads a Secret of its owner's."""
    namespace.apply([secret(role, "first")])
    values = ["--set=database.existingSecret=app-db", "--set=database.uriKey=url", *installed.IMAGE_VALUES]
    installed.helm_install(namespace, "second", helm.APP_CHART, *values)
    yield namespace
    installed.helm_uninstall(namespace, "second")


def secret(role: str, password: str) -> dict[str, Any]:
    url = f"postgresql://{role}:{password}@{installed.NAME}-postgres.{installed.NAMESPACE}.svc/perdure?sslmode=disable"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app-db"}, "stringData": {"url": url}}


def test_a_new_password_reaches_the_operator_without_a_person(release: Release, second: Kubectl, role: str) -> None:
    def container() -> Any:
        (pod,) = second.get("pods", "--selector=app.kubernetes.io/component=operator")["items"]
        return pod["status"]["containerStatuses"][0]

    assert container()["restartCount"] == 0

    release.psql(f"ALTER ROLE {role} PASSWORD 'second'")
    second.apply([secret(role, "second")])

    wait_until("the restart", lambda: container()["restartCount"] == 1, seconds=ROTATION_SECONDS, interval=1)
    assert container()["lastState"]["terminated"]["exitCode"] == 0
    wait_until("a ready operator", lambda: container()["ready"], seconds=60, interval=1)
    # The password "first" is not valid any more, so what is connected now has used the new one.
    connected = (
        f"SELECT 1 AS one FROM pg_stat_activity WHERE usename = '{role}' AND backend_start > now() - interval '1m'"
    )
    wait_until("its connections", lambda: release.psql(connected), seconds=60, interval=1)


@pytest.mark.usefixtures("release")
def test_resources_go_away_without_an_operator(namespace: Kubectl) -> None:
    """Nobody serves this namespace. A finalizer that only the operator takes off would hold it for ever."""
    kind = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow"}
    namespace.apply([{**kind, "metadata": {"name": "left-behind"}, "spec": {"workerPool": "none", "workflow": "w"}}])
    namespace.run("delete", "workflow", "left-behind", "--timeout=10s")
