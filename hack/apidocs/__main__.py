"""`python -m apidocs --write` writes the pages, `--check` says which of them do not say what the docstrings say."""

from __future__ import annotations

import sys

from apidocs import PAGES, ROOT
from apidocs.render import Homeless, pages
from apidocs.source import Unknown


def main(arguments: list[str]) -> int:
    """Exit code 1: a page differs, or a public name cannot be told of; 2: asked for something else."""
    if arguments not in (["--write"], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        wanted = pages()
    except (Homeless, Unknown) as problem:
        print(problem, file=sys.stderr)
        return 1
    there = {file.name: file.read_text(encoding="utf-8") for file in PAGES.glob("*.md")}
    if arguments == ["--check"]:
        differing = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        for name in differing:
            print(f"{(PAGES / name).relative_to(ROOT)} is not what the docstrings say: run `make generate`")
        return 1 if differing else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - wanted.keys():
        (PAGES / name).unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
