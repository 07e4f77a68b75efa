"""What both Dockerfiles must say alike: an engine builds such a stage once for both images.

They are two files, since each can then be built by itself, with any engine and without a target, and authors of
workflows can read the worker's alone.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = {
    "the tools": (" AS tools", "\n\n"),
    "how dependencies are installed": ("COPY ${REQUIREMENTS}", "\n\n"),
    "the project": ("FROM tools AS project", "\n\n"),
    "the last stage": ("COPY --from=dependencies", "PYTHONUNBUFFERED=1\n"),
}


def part(folder: str, first: str, last: str) -> list[str]:
    """Instructions from `first` up to `last`. Comments are each file's own."""
    text = (ROOT / folder / "Dockerfile").read_text()
    text = text[text.index(first) :]
    return [line for line in text[: text.index(last)].splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("what", SHARED)
def test_both_dockerfiles_say_the_same(what: str) -> None:
    assert part("operator", *SHARED[what]) == part("worker_image", *SHARED[what])
