"""What workflow authors write: the decorators. Exported again by `perdure`."""

from perdure.api.registering import default_registry
from perdure.api.starts import PreparedStart
from perdure.api.steps import Step, step
from perdure.api.transactions import Transaction, transaction
from perdure.api.workflows import Workflow, workflow

__all__ = ["PreparedStart", "Step", "Transaction", "Workflow", "default_registry", "step", "transaction", "workflow"]
