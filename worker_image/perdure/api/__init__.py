"""What workflow authors write: the decorators. Exported again by `perdure`."""

from perdure.api.decorators import (
    PreparedStart,
    Step,
    Transaction,
    Workflow,
    default_registry,
    step,
    transaction,
    workflow,
)

__all__ = ["PreparedStart", "Step", "Transaction", "Workflow", "default_registry", "step", "transaction", "workflow"]
