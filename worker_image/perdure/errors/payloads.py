"""What those meet whose values are kept outside of Postgres."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class PayloadsUnavailable(PerdureError):
    """The store that large values are kept in cannot be reached or refuses for now. Runs wait for it."""

    code = "PRD-412"
    retryable = True
