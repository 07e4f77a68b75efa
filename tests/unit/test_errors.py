"""The package of errors: names that are recorded, and the family of what Postgres reports."""

from importlib import import_module
from pkgutil import iter_modules

import perdure
import pytest
from perdure import errors
from perdure.engine.failures import NONE, describe, rebuild

RAISED = (perdure.ConflictingWorkflow, perdure.NonExistentWorkflow, perdure.StoreUnavailable, errors.UnexpectedStep)


def test_every_class_of_every_family_is_in_the_package() -> None:
    families = [import_module(f"{errors.__name__}.{module.name}") for module in iter_modules(errors.__path__)]
    defined = {name for family in families for name, value in vars(family).items() if isinstance(value, type)}
    assert families
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_a_class_is_recorded_under_the_package_and_not_under_its_family(name: str) -> None:
    assert describe(getattr(errors, name)("no")).type == f"perdure.errors.{name}"


@pytest.mark.parametrize("kind", RAISED)
def test_one_except_catches_what_postgres_reports_about_a_call(kind: type[errors.PerdureError]) -> None:
    error = rebuild(describe(kind("no")), NONE, "")
    assert type(error) is kind
    assert isinstance(error, perdure.SystemDatabaseError)
