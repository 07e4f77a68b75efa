"""A worker and a client in one, in the program that starts runs. Exported again by `perdure`.

Stands above the worker: it makes one at its launch and lends its slots to the client that it is (decision 0017).
"""

from perdure.instance.default import launch, shutdown
from perdure.instance.instance import Instance, InstanceSettings

__all__ = ["Instance", "InstanceSettings", "launch", "shutdown"]
