"""The pages of docs/reference/api, made from the docstrings of the public names. `make generate` writes them.

Reads the source and imports nothing of it, so that it sees what authors wrote: signatures as they stand there,
defaults, and the texts behind fields and constants.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ROOT / "worker_image"
"""Where `perdure` is."""

PAGES = ROOT / "docs" / "reference" / "api"
