"""`make model`: the larger instances, one by one. Exit code 0 only if all were seen whole and nothing was broken."""

from __future__ import annotations

import gc
import sys
import time

from tests.model.explore import explore
from tests.model.instances import LARGE, SMALL


def main() -> int:
    # Millions of small values, none of them in a cycle: the collector would look at them again and again.
    gc.disable()
    good = True
    for name, protocol in {**SMALL, **LARGE}.items():
        began = time.monotonic()
        found = explore(protocol)
        good = good and found.complete
        print(
            f"{name:<50} {found.states:>10,} states {time.monotonic() - began:>7.1f} s  {found.violation}", flush=True
        )
        for label in found.trace:
            print(f"    {label}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
