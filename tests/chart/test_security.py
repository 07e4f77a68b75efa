"""Least privilege: restricted pods, namespaced rights and no more of them than needed, passwords only in Secrets."""

from typing import Any

import pytest

from tests.chart import cases
from tests.support import helm
from tests.support.helm import Resource
from tests.support.pod_security import containers, violations

# What the operator calls, and nothing else.
OPERATOR_RIGHTS = {
    ("perdure.dev", "workflows"): {"get", "list", "watch"},
    ("perdure.dev", "workerpools"): {"get", "list", "watch"},
    ("perdure.dev", "workflowsignals"): {"get", "list", "watch"},
    ("perdure.dev", "workflows/status"): {"patch"},
    ("perdure.dev", "workerpools/status"): {"patch"},
    ("perdure.dev", "workflowsignals/status"): {"patch"},
    ("apps", "deployments"): {"get", "list", "watch", "create", "patch", "delete"},
    ("apps", "deployments/scale"): {"get", "patch"},
    ("", "pods"): {"get", "list", "watch"},
    ("", "events"): {"create", "patch"},
}
# A worker writes the status of its runs: a JSON patch needs no right to read.
WORKER_RIGHTS = {("perdure.dev", "workflows/status"): {"patch"}}


def rights(role: Resource) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def in_namespaces(found: list[Resource], kind: str, name: str) -> dict[str, Resource]:
    return {
        each["metadata"]["namespace"]: each
        for each in found
        if each["kind"] == kind and each["metadata"]["name"] == name
    }


@pytest.mark.parametrize("case", cases.CASES)
def test_every_pod_is_restricted(case: str) -> None:
    for name, pod in cases.pods(cases.objects(case)).items():
        assert violations(pod) == [], name


@pytest.mark.parametrize("values", [cases.SMALLEST, cases.THROWAWAY], ids=["operator", "postgres too"])
def test_our_containers_are_stricter_still(values: dict[str, Any]) -> None:
    for name, pod in cases.pods(cases.render(values)).items():
        assert "runAsUser" not in pod["securityContext"], f"{name}: OpenShift gives each namespace its own"
        assert pod["enableServiceLinks"] is False, name
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert "memory" in container["resources"]["limits"], name
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], name


def test_only_what_talks_to_the_api_server_gets_a_token() -> None:
    found = cases.render(cases.THROWAWAY)
    mounts = {name: pod["automountServiceAccountToken"] for name, pod in cases.pods(found).items()}
    assert mounts == {"Deployment demo-perdure-operator": True, "Deployment demo-perdure-postgres": False}
    assert helm.only(found, "ServiceAccount", "demo-perdure-operator")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("values", [cases.SMALLEST, {**cases.SMALLEST, "watchNamespaces": ["a", "b"]}], ids=str)
def test_nothing_cluster_wide_by_default(values: dict[str, Any]) -> None:
    assert not [each for each in cases.render(values) if each["kind"].startswith("Cluster")]


def test_the_operator_has_the_rights_it_uses_in_the_watched_namespaces_only() -> None:
    found = cases.render({**cases.SMALLEST, "watchNamespaces": ["a", "b"]})
    roles = in_namespaces(found, "Role", "demo-perdure-operator")
    assert roles.keys() == {"a", "b"}
    assert all(rights(role) == OPERATOR_RIGHTS for role in roles.values())
    for binding in in_namespaces(found, "RoleBinding", "demo-perdure-operator").values():
        account = {"kind": "ServiceAccount", "name": "demo-perdure-operator", "namespace": "perdure-system"}
        assert binding["subjects"] == [account]
        assert binding["roleRef"]["name"] == "demo-perdure-operator"


def test_the_list_of_namespaces_is_what_the_operator_watches() -> None:
    """One value drives both: an operator that watches where it has no rights never gets ready."""
    for values, namespaces in (({}, "perdure-system"), ({"watchNamespaces": ["b", "a", "b"]}, "b,a")):
        found = cases.render({**cases.SMALLEST, **values})
        environment = helm.only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "PERDURE_OPERATOR_NAMESPACES", "value": namespaces} in environment
        roles = in_namespaces(found, "Role", "demo-perdure-operator")
        assert roles.keys() == set(namespaces.split(","))


def test_a_worker_may_write_statuses_and_nothing_else() -> None:
    found = cases.render({**cases.SMALLEST, "watchNamespaces": ["a", "b"]})
    for namespace in ("a", "b"):
        assert rights(in_namespaces(found, "Role", "demo-perdure-worker")[namespace]) == WORKER_RIGHTS
        binding = in_namespaces(found, "RoleBinding", "demo-perdure-worker")[namespace]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "perdure-worker", "namespace": namespace}]
        assert in_namespaces(found, "ServiceAccount", "perdure-worker")[namespace]


def test_the_readme_lists_the_rights() -> None:
    """Whoever sets rbac.create to false makes the Roles from that table."""
    listed: dict[str, dict[str, set[str]]] = {"operator": {}, "workers": {}}
    for line in (helm.APP_CHART / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] in listed:
            for resource in cells[1].split(", "):
                listed[cells[0]][resource] = set(cells[2].split(", "))
    assert listed["operator"] == {resource: verbs for (_, resource), verbs in OPERATOR_RIGHTS.items()}
    assert listed["workers"] == {resource: verbs for (_, resource), verbs in WORKER_RIGHTS.items()}


def test_people_get_rights_on_request() -> None:
    found = [each for each in cases.objects("everything") if each["kind"] == "ClusterRole"]
    roles = {each["metadata"]["name"].rpartition("-")[2]: each for each in found}
    assert roles.keys() == {"view", "edit", "admin"}
    for name, role in roles.items():
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{name}"] == "true"
    assert all(verbs == {"get", "list", "watch"} for verbs in rights(roles["view"]).values())
    # A pool runs any image as any account, which is more than writing workflows.
    assert {resource for _, resource in rights(roles["edit"])} == {"workflows"}


def test_who_may_approve_is_no_part_of_the_role_edit() -> None:
    """A signal may be an approval, and whoever writes Workflows is not always who approves them."""
    found = [each for each in cases.objects("everything") if each["kind"] == "ClusterRole"]
    roles = {each["metadata"]["name"].rpartition("-")[2]: rights(each) for each in found}
    signal = ("perdure.dev", "workflowsignals")
    assert signal not in roles["edit"]
    assert "create" in roles["admin"][signal]
    assert roles["view"][signal] == {"get", "list", "watch"}


def test_passwords_are_mounted_never_written() -> None:
    for case in cases.CASES:
        for each in cases.objects(case):
            if each["kind"] == "Secret":
                continue
            assert "another-password" not in str(each)
            for pod in cases.pods([each]).values():
                for container in containers(pod):
                    assert not [env["name"] for env in container.get("env", []) if "secretKeyRef" in str(env)]


def test_the_only_secret_is_that_of_the_throwaway_postgres() -> None:
    for case in cases.CASES:
        names = {each["metadata"]["name"] for each in cases.objects(case) if each["kind"] == "Secret"}
        assert names == ({"demo-perdure-database"} if case == "throwaway" else set())


def test_with_network_policies_everything_needed_is_open() -> None:
    found = cases.render({**cases.THROWAWAY, "networkPolicy": {"enabled": True}, "watchNamespaces": ["a"]})
    operator = helm.only(found, "NetworkPolicy", "demo-perdure-operator")["spec"]
    ports = {port["port"] for rule in operator["egress"] for port in rule["ports"]}
    assert ports == {53, 443, 6443, 5432}
    assert operator["ingress"] == [{"ports": [{"port": "metrics"}]}]
    postgres = helm.only(found, "NetworkPolicy", "demo-perdure-postgres")["spec"]
    assert len(postgres["ingress"][0]["from"]) == 2
    worker = helm.only(found, "NetworkPolicy", "demo-perdure-worker")
    assert worker["metadata"]["namespace"] == "a"
    assert worker["spec"]["policyTypes"] == ["Ingress"]


# -- the checker of pods itself

GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "containers": [
        {
            "name": "c",
            "ports": [{"containerPort": 80}],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


def changed(pod: dict[str, Any] | None = None, context: dict[str, Any] | None = None, **container: Any) -> Any:
    first = GOOD["containers"][0]
    own = {**first, **container, "securityContext": {**first["securityContext"], **(context or {})}}
    return {**GOOD, "containers": [own], **(pod or {})}


@pytest.mark.parametrize(
    ("pod", "violation"),
    [
        (changed({"hostNetwork": True}), "hostNetwork is set"),
        (changed({"hostPID": True}), "hostPID is set"),
        (changed({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), "volume v: hostPath is not allowed"),
        (
            changed({"securityContext": {**GOOD["securityContext"], "sysctls": [{"name": "kernel.msgmax"}]}}),
            "sysctl kernel.msgmax is not allowed",
        ),
        (changed({"securityContext": {"runAsNonRoot": True}}), "container c: no seccomp profile"),
        (changed({"initContainers": [{"name": "i"}]}), "container i: capabilities are not dropped"),
        (changed(context={"privileged": True}), "container c: privileged"),
        (changed(context={"allowPrivilegeEscalation": None}), "container c: allowPrivilegeEscalation is not false"),
        (changed(context={"runAsNonRoot": False}), "container c: runAsNonRoot is not true"),
        (changed(context={"runAsUser": 0}), "container c: runAsUser is 0"),
        (changed(context={"capabilities": {"drop": ["KILL"]}}), "container c: capabilities are not dropped"),
        (
            changed(context={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
            "container c: adds the capability SYS_ADMIN",
        ),
        (changed(context={"seccompProfile": {"type": "Unconfined"}}), "container c: seccomp profile Unconfined"),
        (changed(context={"procMount": "Unmasked"}), "container c: procMount is not Default"),
        (changed(context={"seLinuxOptions": {"user": "root"}}), "container c: SELinux options"),
        (changed(context={"appArmorProfile": {"type": "Unconfined"}}), "container c: AppArmor profile Unconfined"),
        (changed(ports=[{"hostPort": 80}]), "container c: hostPort 80"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_checker_finds_what_restricted_forbids(pod: dict[str, Any], violation: str) -> None:
    assert violation in violations(pod)


def test_the_checker_admits_a_restricted_pod() -> None:
    assert violations(GOOD) == []
