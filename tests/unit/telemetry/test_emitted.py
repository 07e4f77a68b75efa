"""What is declared is emitted by whom the declaration says, and nothing else is."""

import re
from pathlib import Path

import pytest
from perdure.telemetry import names
from perdure.telemetry.names import Component, Metric

ROOT = Path(__file__).parents[3]
SOURCES = {
    Component.WORKER: ROOT / "worker_image/perdure/worker",
    Component.OPERATOR: ROOT / "operator/perdure_operator",
}
CONSTANTS = {constant: value for constant, value in vars(names).items() if isinstance(value, Metric)}


def used_in(folder: Path) -> set[str]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return set(re.findall(r"\bnames\.([A-Z_]+)\b", text)) & CONSTANTS.keys()


@pytest.mark.parametrize("component", list(Component))
def test_a_component_emits_what_is_declared_for_it(component: Component) -> None:
    declared = {constant for constant, metric in CONSTANTS.items() if component in metric.emitted_by}
    assert used_in(SOURCES[component]) == declared
