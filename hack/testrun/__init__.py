"""The runner behind `make test`: the virtual environment, the tiers in order, one report.

Only the standard library is imported, so that a fresh machine needs nothing but Python to begin.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".cache" / "test"
