"""The testing kit: a database, a worker and the time, all in a test's hand. `docs/how-to/testing.md` shows it.

Stands above the worker and the instance, and nothing of it is used in production. pytest finds its fixtures by itself
(`perdure_env`, `perdure_database`, `perdure_postgres`); for other runners there are `serving` and `Environment`.
"""

from perdure.testing.environment import Environment
from perdure.testing.faults import At
from perdure.testing.history import History, RecordedCall
from perdure.testing.replay import replay
from perdure.testing.server import DatabaseServer, serving
from perdure.testing.time import TimeStands

__all__ = ["At", "DatabaseServer", "Environment", "History", "RecordedCall", "TimeStands", "replay", "serving"]
