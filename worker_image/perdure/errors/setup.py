"""What keeps a process or a resource from being set up: settings, registration, bootstrap, resources."""

from __future__ import annotations

from perdure.errors.arguments import InvalidArgument
from perdure.errors.base import PerdureError


class ConfigurationError(PerdureError):
    """A setting, environment variable or URL is missing or cannot be used. The process does not start."""

    code = "PRD-101"


class AlreadyRegistered(PerdureError):
    """Two workflows or two steps were registered under one name. The worker does not start."""

    code = "PRD-102"


class RegistrationError(InvalidArgument):
    """A function cannot be a workflow or a step (a generator, an unreadable signature, a bad option)."""

    code = "PRD-103"


class BootstrapFailed(PerdureError):
    """The application's bootstrap hook raised; its own error is the cause. The worker does not start."""

    code = "PRD-110"


class MigrationFilesChanged(PerdureError):
    """Files of migrations in a user's tree are not what was written there; nothing is written beside them."""

    code = "PRD-111"


class InvalidResource(PerdureError):
    """A custom resource breaks a rule that the API server could not check; becomes `Accepted=False`."""

    code = "PRD-201"
