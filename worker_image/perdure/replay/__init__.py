"""Replays recorded histories against the code that is here: what would meet another step than is recorded, and where.

Used by `perdure replay` and by tests (`perdure.testing`). Promises: no step is run, nothing is written and nothing is
asked of anybody; a history says how far the code goes with it, and of what does not fit the first thing.
"""

from perdure.replay.check import replay
from perdure.replay.report import Difference, Report

__all__ = ["Difference", "Report", "replay"]
