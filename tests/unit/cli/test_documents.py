"""The files that `perdure dev` reads: what is taken, what is left alone, and the words for what is wrong."""

from pathlib import Path

import pytest
from perdure.dev import documents
from perdure.errors import InvalidResource

WORKFLOW = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: NAME}
spec: {workflow: orders.process_order, input: {orderId: a, at: 2024-05-01T10:00:00Z}}
"""
POOL = """
apiVersion: perdure.dev/v1alpha1
kind: WorkerPool
metadata: {name: NAME}
spec: {modules: [flows], template: {spec: {containers: [{name: worker, image: i}]}}}
"""


def workflow(name: str = "order-1") -> str:
    return WORKFLOW.replace("NAME", name)


def pool(name: str = "default") -> str:
    return POOL.replace("NAME", name)


def write(folder: Path, name: str, *parts: str) -> Path:
    path = folder / name
    path.write_text("\n---\n".join(parts))
    return path


def names(found: documents.Documents) -> tuple[list[str], list[str]]:
    return [each.metadata.name for each in found.workflows], [each.metadata.name for each in found.pools]


def test_a_file_of_several_documents(tmp_path: Path) -> None:
    path = write(tmp_path, "all.yaml", workflow("a"), pool(), "", workflow("b"), "kind: ConfigMap\napiVersion: v1")
    found = documents.read(path)
    assert names(found) == (["a", "b"], ["default"])
    assert found.ignored == (f"{path}, document 5: ConfigMap of v1",)


def test_a_signal_is_left_to_an_operator_and_that_is_said(tmp_path: Path) -> None:
    signal = "kind: WorkflowSignal\napiVersion: perdure.dev/v1alpha1\nspec: {workflowName: a}"
    path = write(tmp_path, "all.yaml", workflow("a"), pool(), signal)
    [ignored] = documents.read(path).ignored
    assert ignored.startswith(f"{path}, document 3: WorkflowSignal, which needs an operator")


def test_a_file_uses_the_pools_beside_it_but_not_the_workflows(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", workflow("a"))
    write(tmp_path, "pools.yaml", pool(), pool("other"))
    write(tmp_path, "b.yaml", workflow("b"))
    write(tmp_path, "broken.yaml", "{")
    write(tmp_path, "values.yaml", "name: no object")
    found = documents.read(path)
    assert names(found) == (["a"], ["default"])
    assert [place.split(":")[0].rpartition("/")[2] for place in found.ignored] == ["broken.yaml", "values.yaml"]


def test_a_folder_is_all_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", workflow("a"))
    write(tmp_path, "b.yml", workflow("b"), pool())
    assert names(documents.read(tmp_path)) == (["a", "b"], ["default"])


def test_what_an_api_server_would_fill_in(tmp_path: Path) -> None:
    generated = workflow().replace("{name: order-1}", "{generateName: order-}")
    found = documents.read(write(tmp_path, "a.yaml", generated)).workflows[0]
    assert found.metadata.namespace == "default"
    assert found.metadata.generation == 1
    assert found.metadata.name.startswith("order-") and len(found.metadata.name) > len("order-")


def test_an_instant_stays_the_text_that_was_written(tmp_path: Path) -> None:
    found = documents.read(write(tmp_path, "a.yaml", workflow())).workflows[0]
    assert found.spec.input["at"] == "2024-05-01T10:00:00Z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("- a", "not a Kubernetes object: it needs apiVersion and kind"),
        (pool(), "no Workflow of perdure.dev/v1alpha1 in it"),
        (workflow().replace("v1alpha1", "v1"), "apiVersion perdure.dev/v1 is not known"),
        (
            workflow().replace("Workflow\n", "Workflows\n"),
            "kind Workflows is not known; there are Workflow and WorkerPool",
        ),
        (workflow().replace("workflow:", "wrkflow:"), "spec.wrkflow: unknown field"),
        (workflow().replace("metadata: {name: order-1}", "metadata: {}"), "metadata.name"),
        (f"{workflow()}\n---\n{workflow()}", "document 2: Workflow default/order-1 is there twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, "a.yaml", text)
    with pytest.raises(InvalidResource) as caught:
        documents.read(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidResource, match="no such file or folder"):
        documents.read(tmp_path / "none.yaml")
    with pytest.raises(InvalidResource, match=r"no .yaml or .yml file"):
        documents.read(tmp_path)


def test_modules_are_looked_for_beside_the_file(tmp_path: Path) -> None:
    paths = documents.module_paths(tmp_path / "a.yaml", [tmp_path / "src"])
    assert paths == [tmp_path / "src", tmp_path, Path.cwd()]
