"""What those meet who say the limits of queues."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class NonExistentQueue(PerdureError):
    """The queue has no limits that could be read, paused or taken off: it is used by its name alone."""

    code = "PRD-535"
