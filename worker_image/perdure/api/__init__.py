"""What workflow authors write: the decorators. Exported again by `perdure`."""

from perdure.api.decorators import Step, Workflow, default_registry, step, workflow

__all__ = ["Step", "Workflow", "default_registry", "step", "workflow"]
