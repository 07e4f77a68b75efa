"""Start runs and wait for them from code that is no worker. Exported again by `perdure`."""

from perdure.client.client import Client
from perdure.client.handle import Handle

__all__ = ["Client", "Handle"]
