"""Which values kept elsewhere the rows name: all of them, wherever they are."""

import re
from pathlib import Path

import pytest
from perdure.store import offloaded

from tests.store.builders import Connection, add_run

SQL = Path(__file__).parents[2] / "worker_image" / "perdure" / "store" / "sql"

HOLDERS = """
INSERT INTO perdure.workflow_payloads (workflow_id, input, output) VALUES ('p1', '!o:in', '!o:out'), ('p2', '[]', NULL);
INSERT INTO perdure.workflow_steps
       (workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output)
    VALUES ('p1', 0, 's', 30, 1, 1, 1, 1, '!o:arguments', '!o:result'),
           ('zz', 3, 's', 30, 1, 1, 1, 1, '[]', '!o:behind');
INSERT INTO perdure.messages (workflow_id, topic, key, value) VALUES ('p1', '', 'k', '!o:message');
INSERT INTO perdure.events (workflow_id, name, value, fence, seq) VALUES ('p1', 'e', '!o:event', 1, 1);
INSERT INTO perdure.events_history (workflow_id, step_index, name, value) VALUES ('p1', 1, 'e', '!o:history');
INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index) VALUES ('p1', 'k', 0, '!o:stream', 2);
INSERT INTO perdure.schedules
       (namespace, name, cron, time_zone, overlap, catch_up, catch_up_window, jitter, workflow, requires, input, pool,
        queue, priority, partition_key)
    VALUES ('ns', 's', '* * * * *', 'UTC', 'skip', 'none', '1 h', '0', 'w', 'workflow:w', '!o:schedule', 'p', 'q',
            1, '');
INSERT INTO perdure.undos (workflow_id, step_index, name, input) VALUES ('p1', 0, 's', '!o:undo');
INSERT INTO perdure.idempotency_keys (scope, key, state, token, value) VALUES ('s', 'k', 20, 't', '!o:kept');
"""

NAMES = [
    "arguments",
    "behind",
    "event",
    "history",
    "in",
    "kept",
    "message",
    "out",
    "result",
    "schedule",
    "stream",
    "undo",
]


async def found(conn: Connection, prefix: str = "!o:") -> list[str]:
    return sorted([name async for name in offloaded.names(conn, prefix)])


async def test_what_any_row_names_is_found(conn: Connection) -> None:
    await conn.execute(HOLDERS)
    assert await found(conn) == NAMES


async def test_what_other_codecs_and_the_values_themselves_say_is_not(conn: Connection) -> None:
    await add_run(conn, "r1", input='["!o:text"]')
    await add_run(conn, "r2", input="!other:x")
    assert await found(conn) == []
    assert await found(conn, "!other:") == ["x"]


async def test_pages_leave_nothing_out(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloaded, "PAGE", 2)
    for number in range(7):
        await add_run(conn, f"r{number}", input=f"!o:{number}")
        await conn.execute(
            "INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence,"
            " started_seq, input, output) VALUES ($1, 0, 's', 30, 1, 1, 1, 1, '[]', $2)",
            f"r{number}",
            f"!o:step{number}",
        )
        await conn.execute(
            "INSERT INTO perdure.idempotency_keys (scope, key, state, token, value) VALUES ($1, $2, 20, 't', $3)",
            f"s{number % 3}",
            f"k{number}",
            f"!o:key{number}",
        )
    kinds = ("", "step", "key")
    assert await found(conn) == sorted(f"{kind}{number}" for kind in kinds for number in range(7))


async def test_all_rows_are_read_at_one_instant(conn: Connection, pg_url: str) -> None:
    """A value that moves while the rows are read, out of what comes later into what was read before."""
    from perdure.store.pool import connect

    await conn.execute(HOLDERS)
    other = await connect(pg_url, application_name="mover")
    names = offloaded.names(conn, "!o:")
    seen = [await anext(names)]
    await other.execute("UPDATE perdure.events SET value = '!o:in'")
    await other.execute("UPDATE perdure.workflow_payloads SET input = '[]'")
    await other.close()
    seen += [name async for name in names]
    assert sorted(seen) == NAMES


async def test_every_column_that_can_hold_a_value_is_looked_at(conn: Connection) -> None:
    """A new table of values must be known to the sweep, which removes what it does not find."""
    rows = await conn.fetch(
        "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t"
        " USING (table_schema, table_name) WHERE c.table_schema = 'perdure' AND c.data_type = 'text'"
        " AND t.table_type = 'BASE TABLE' AND c.column_name IN ('input', 'output', 'value')"
    )
    held = {f"{row['table_name']}.{row['column_name']}" for row in rows}
    text = "".join((SQL / f"offload_{name}.sql").read_text() for name in ("payloads", "steps", "keys", "others"))
    # `SELECT substr(value, 1, 200) FROM perdure.messages`, and pages that select their columns.
    others = re.findall(r"substr\((\w+), 1, 200\)(?: AS head)? FROM perdure\.(\w+)", text)
    looked_at = {f"{table}.{column}" for column, table in others}
    looked_at |= {f"workflow_payloads.{column}" for column in re.findall(r"substr\(p\.(\w+),", text)}
    looked_at |= {f"workflow_steps.{column}" for column in re.findall(r"substr\(s\.(\w+),", text)}
    assert held == looked_at
