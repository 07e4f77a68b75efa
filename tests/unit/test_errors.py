"""The package of errors: names that are recorded, and the family of what Postgres reports."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import perdure
import pytest
from perdure import errors
from perdure.engine.failures import NONE, describe, rebuild

SEED = {
    "NotLaunched": perdure.NotLaunched,
    "AlreadyLaunched": perdure.AlreadyLaunched,
    "NotInWorkflow": perdure.NotInWorkflow,
    "InsideStep": perdure.InsideStep,
    "InsideWorkflow": perdure.InsideWorkflow,
    "WrongInstance": perdure.WrongInstance,
    "Config": perdure.ConfigurationError,
    "InvalidArgument": perdure.InvalidArgument,
    "AlreadyRegistered": perdure.AlreadyRegistered,
    "NotRegistered": perdure.NotRegistered,
    "Serialization": perdure.EncodingFailed,
    "Deserialization": perdure.DecodingFailed,
    "UnknownSerialization": errors.UnknownSerialization,
    "WorkflowNotFound": perdure.WorkflowNotFound,
    "Interrupted": perdure.Interrupted,
    "WorkflowFailed": perdure.WorkflowFailed,
    "Portable": perdure.Portable,
    "WorkflowCancelled": perdure.WorkflowCancelled,
    "AwaitedWorkflowCancelled": perdure.AwaitedWorkflowCancelled,
    "MaxRecoveryAttemptsExceeded": perdure.MaxRecoveryAttemptsExceeded,
    "StepFailed": perdure.StepFailed,
    "StepBuiltElsewhere": perdure.StepBuiltElsewhere,
    "PatchNondeterminism": perdure.PatchNondeterminism,
    "StepTimeout": perdure.StepTimeout,
    "StreamTimeout": perdure.StreamTimeout,
    "MaxStepRetriesExceeded": perdure.MaxStepRetriesExceeded,
}
"""What the source documents call each error, and which of ours it is."""

SEED_DATABASE = {
    "WorkflowIdInUse": perdure.WorkflowIdInUse,
    "QueueDeduplicated": perdure.QueueDeduplicated,
    "ConflictingWorkflow": perdure.ConflictingWorkflow,
    "UnexpectedStep": perdure.UnexpectedStep,
    "WorkflowConflict": perdure.WorkflowConflict,
    "NonExistentWorkflow": perdure.NonExistentWorkflow,
    "WorkflowNotRewindable": perdure.WorkflowNotRewindable,
    "Backend": perdure.StoreUnavailable,
}
"""Those that they have in the family of the database; the cancel of a run is in none, as it is outside of it there."""

PAGE = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text(encoding="utf-8")

RAISED = (perdure.ConflictingWorkflow, perdure.NonExistentWorkflow, perdure.StoreUnavailable, errors.UnexpectedStep)


def test_every_class_of_every_family_is_in_the_package() -> None:
    families = [import_module(f"{errors.__name__}.{module.name}") for module in iter_modules(errors.__path__)]
    defined = {name for family in families for name, value in vars(family).items() if isinstance(value, type)}
    assert families
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "Portable"])
def test_a_class_is_recorded_under_the_package_and_not_under_its_family(name: str) -> None:
    assert describe(getattr(errors, name)("no")).type == f"perdure.errors.{name}"


@pytest.mark.parametrize("kind", RAISED)
def test_one_except_catches_what_postgres_reports_about_a_call(kind: type[errors.PerdureError]) -> None:
    error = rebuild(describe(kind("no")), NONE, "")
    assert type(error) is kind
    assert isinstance(error, perdure.SystemDatabaseError)


@pytest.mark.parametrize("name", [*SEED, *SEED_DATABASE])
def test_every_error_of_the_source_documents_has_a_code_a_flag_and_a_paragraph(name: str) -> None:
    kind = {**SEED, **SEED_DATABASE}[name]
    assert issubclass(kind, perdure.PerdureError)
    assert kind.code != perdure.PerdureError.code
    assert isinstance(kind.retryable, bool)
    assert f"### {kind.code} {kind.__name__}\n" in PAGE
    assert getattr(perdure, kind.__name__) is kind


@pytest.mark.parametrize("name", SEED_DATABASE)
def test_what_the_database_reports_is_one_family(name: str) -> None:
    assert issubclass(SEED_DATABASE[name], perdure.SystemDatabaseError)


def test_an_error_that_is_not_known_yet_is_caught_by_the_base() -> None:
    assert all(
        issubclass(getattr(errors, name), perdure.PerdureError | perdure.ControlSignal) for name in errors.__all__
    )
