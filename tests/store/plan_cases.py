"""For every shipped statement: arguments as they come in practice, the indexes its plan must use, and the most rows
it may touch on a database of 200,000 runs. A statement without a case fails the tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.model.outcome import Succeeded
from perdure.model.rows import StepWrite
from perdure.model.states import StepStatus
from perdure.store import journal
from perdure.store.journal import RunWrites

IDS = [f"r{n:06}" for n in range(1, 101)]
FINISHED = [f"f{n:06}" for n in range(1, 101)]
MANY = [f"q{n:06}" for n in range(1, 401)]
OWNED = [f"o{n:06}" for n in range(50, 200, 50)]
NEW = [f"new-{n:06}" for n in range(1, 501)]
MANIFEST = ["step:y", "workflow:x"]


@dataclass(frozen=True)
class Case:
    statement: str
    arguments: Sequence[Any]
    indexes: frozenset[str]
    most_rows: int


def case(statement: str, arguments: Sequence[Any], indexes: str, most_rows: int) -> Case:
    return Case(statement, arguments, frozenset(indexes.split()), most_rows)


def journal_writes(runs: Sequence[str], worker: str, endings: int) -> Sequence[Any]:
    """Of each run the finish of a step and the start of the next; so many of them end."""
    finish = StepWrite(3, 1, "step", StepStatus.SUCCEEDED, None, "1")
    begin = StepWrite(4, 2, "step", StepStatus.RUNNING, "[]", fresh=True)
    writes = [
        RunWrites(run, 1, (finish, begin), Succeeded("1") if number < endings else None)
        for number, run in enumerate(runs)
    ]
    return journal.statement(worker, writes, journal.DEFAULT_BACKOFF)[1]


UPSERT = ["ns", "n", "x", MANIFEST, "default", "default", 100, None, False, None, 10, 1, 1, "{}", None, ""]

ROUTE = 3203986688490748913
"""Column `route` of a run that requires `{workflow:x}`."""

START = ("x", "workflow:x", "p", "q", 100, None, None, "", "[]")

CLAIM = ["w0002", "ns", "default", "default", MANIFEST]
LIMITED = ["w0002", "ns", "default", "q1", MANIFEST]


def ranges(*versions: str) -> list[list[Any]]:
    """Columns of the range of each version whose runs require one workflow, from the beginning."""
    count = len(versions)
    return [
        list(versions),
        [ROUTE] * count,
        [""] * count,
        [0] * count,
        [-(2**31)] * count,
        ["-infinity"] * count,
        [""] * count,
    ]


def calls_of(runs: Sequence[str], *columns: list[Any]) -> list[Any]:
    """Columns of one call of each run, then those of its kind."""
    count = len(runs)
    return [
        list(runs),
        "w0001",
        list(runs),
        [1] * count,
        [7] * count,
        [9] * count,
        ["[]"] * count,
        ["1"] * count,
        *columns,
    ]


N = len(OWNED)

FROM = ["9999-01-01", ""]
"""Where a list begins that has the newest first."""

LISTED = "workflows_listed_open workflows_listed_succeeded workflows_listed_others"

SCHEDULES = [f"s{n:06}" for n in range(1, 101)]
RULE = ["0 * * * *", "UTC", "skip", "latest", 3600.0, 0.0]
SCHEDULE = [*RULE, "x", "workflow:x", "[]", "p", "q", 100, None, "", None, None]
"""What a schedule says beside its name, in the order of the statement."""

CASES = [
    case(
        "call_start",
        calls_of(
            OWNED,
            [f"child-{n}" for n in range(N)],
            ["x"] * N,
            ["workflow:x"] * N,
            ["[]"] * N,
            [None] * N,
            [None] * N,
            [None] * N,
            [None] * N,
            [None] * N,
            [None] * N,
            [False] * N,
            [None] * N,
            [None] * N,
            [None] * N,
            [None] * N,
        ),
        "",
        80,
    ),
    case("call_send", calls_of(OWNED, IDS[:N], ["t1"] * N, [f"new-{n}" for n in range(N)], ["1"] * N), "", 80),
    case("call_receive", calls_of(OWNED, ["t1"] * N, [None] * N, ["waiting"] * N), "messages_inbox", 80),
    case("call_set_event", calls_of(OWNED, ["done"] * N, ["2"] * N), "", 80),
    case("call_await_event", calls_of(OWNED, FINISHED[:N], ["never"] * N, [60.0] * N), "", 80),
    case("call_write_stream", calls_of(OWNED, ["s"] * N, ["1"] * N, [False] * N), "", 80),
    case("call_close_stream", calls_of(OWNED, ["s"] * N, [False] * N), "", 80),
    case("call_await_stream", calls_of(OWNED, FINISHED[:N], ["s"] * N, [5] * N, [60.0] * N), "", 80),
    case("call_stream", ["o000050", "f000001", "s", 3], "workflows_pkey stream_values_pkey streams_pkey", 6),
    case("call_await_runs", calls_of(OWNED, [1 + n % N for n in range(200)], [*IDS, *FINISHED]), "", 80),
    case("call_await_news", [IDS + FINISHED], "workflows_pkey", 900),
    case("call_statuses", ["o000050", IDS + FINISHED], "workflows_pkey", 300),
    case("call_outcomes", [FINISHED, [1] * 100, [0] * 100], "workflow_steps_pkey", 250),
    case("call_runs", ["o000050", FINISHED, True], "workflows_pkey workflow_payloads_pkey", 300),
    case("call_event", ["o000050", "f000001", "done"], "workflows_pkey events_pkey", 4),
    case("call_inbox", ["o000050", "go"], "workflows_pkey messages_inbox", 4),
    case("wake_runs", [IDS + FINISHED, ["message:t"] * 200], "workflows_pkey", 800),
    case("wake_child_told", [FINISHED], "workflows_pkey", 400),
    case("wake_message_told", [["o000001"] * 100, [f"k{n * 1000}" for n in range(100)]], "messages_key", 400),
    case("wake_event_waits", ["f000001", "done", 200], "event_waits_pkey", 250),
    case("wake_event_forget", ["f000001", "done", [f"s{n:06}" for n in range(2, 202, 2)]], "", 500),
    case("wake_event_told", ["f000100", "done", 1, 1], "events_pkey", 2),
    case("wake_streams", [FINISHED, ["s"] * 100], "streams_pkey", 400),
    case("wake_stream_waits", [FINISHED, ["s"] * 100, [5] * 100, [False] * 100, 200], "stream_waits_pkey", 500),
    case(
        "wake_stream_forget",
        [["f000001"] * 100, ["s"] * 100, [f"s{n:06}" for n in range(2, 202, 2)], [5] * 100, [False] * 100],
        "",
        500,
    ),
    case("wake_stream_told", [FINISHED, ["s"] * 100, [3] * 100, [False] * 100], "streams_pkey", 300),
    case("wake_counts", [IDS], "workflows_pkey", 150),
    case("wake_run_waits", [[*FINISHED[1:], "r000001"], 200], "run_waits_pkey", 350),
    case(
        "wake_run_forget",
        [["r000001"] * 100, [f"s{n:06}" for n in range(2, 202, 2)], [1] * 100, [1] * 100],
        "",
        500,
    ),
    case("sweep_run_waits", ["f005000", 500, 0.5], "run_waits_pkey workflows_pkey", 1600),
    case("sweep_untold", [100, 0.5], "workflows_untold", 110),
    case("sweep_untold_streams", [100, 0.5], "streams_untold", 110),
    case("sweep_unannounced", [100, 0.5], "messages_unannounced", 110),
    case("sweep_unannounced_events", [100, 0.5], "events_unannounced", 110),
    case("sweep_cascade", [100], "workflows_cascade", 110),
    case("sweep_cascade_children", [[f"f{n:06}" for n in range(1, 100_000, 1000)], 200], "workflows_children", 1000),
    case("sweep_cascade_done", [[f"f{n:06}" for n in range(1, 100_000, 1000)]], "workflows_children", 1000),
    case(
        "client_start",
        ["ns", False, NEW, *([each] * 500 for each in START), *([None] * 500 for _ in range(5))],
        "",
        10,
    ),
    case(
        "client_start_here",
        ["w0002", "v1", NEW[0], "ns", "x", "workflow:x", "p", "q", 100, None, "", "[]", "d", "{}", 1, 3, 1],
        "workers_pkey",
        5,
    ),
    case("client_send", ["r000001", "topic", "key", "1"], "workflows_pkey", 2),
    case("plain_send", [OWNED[0], "w0001", 1, "r000001", "topic", "key", "1"], "workflows_pkey", 4),
    case("client_events", [FINISHED, ["done"] * 100], "events_pkey", 300),
    case(
        "client_streams",
        [FINISHED, ["s"] * 100, [1] * 100, 200, 262144],
        "workflows_pkey streams_pkey stream_values_pkey",
        1500,
    ),
    case("signal_send", ["r000001", "topic", "key", "{}"], "workflows_pkey messages_key", 3),
    case("client_holders", ["ns", ["q"] * 100, IDS], "workflows_deduplication", 100),
    case("call_holder", ["o000050", None, "d"], "workflows_pkey workflows_deduplication", 2),
    case("undo_promise", [OWNED[0], "w0001", 1, 0, "back", "[null]"], "workflows_pkey", 4),
    case("undo_begin", ["u000001", "w0001", 1, 9], "workflows_pkey undos_pkey workflow_steps_pkey", 20),
    case("undo_plan", ["u000002"], "workflows_pkey undos_pkey workflow_steps_pkey", 20),
    case("undo_first", ["u000002"], "workflows_pkey workflow_steps_pkey", 10),
    case("undo_reopen", [["u000002"]], "workflows_pkey workflow_steps_pkey", 10),
    case("rerun_lock", ["f000001", 1], "workflows_pkey", 1),
    case("rerun", ["f000001", 1], "workflows_pkey", 2),
    case("client_existing", [IDS], "workflows_pkey workflow_payloads_pkey", 200),
    case("client_watch", [MANY, [], 65536], "workflows_pkey workflow_payloads_pkey", 1200),
    case("client_watch", [FINISHED, FINISHED, 65536], "workflows_pkey workflow_payloads_pkey", 600),
    case("client_watch", [MANY, MANY, 65536], "workflows_pkey workflow_payloads_pkey", 2500),
    case("claim_ranges", [*CLAIM, "v2", "", 100], "workflows_ready", 60),
    case("claim", [*CLAIM, "v2", 4, *ranges("", "v2")], "workflows_ready workflows_pkey", 60),
    case("claim", [*CLAIM, "v2", 100, *ranges("v2")], "workflows_ready workflows_pkey", 600),
    case("claim", [*CLAIM, "v9", 50, *ranges("", "v9")], "workflows_ready workflows_pkey", 400),
    case("claim_limited", [*CLAIM, "v2", 4, *ranges("", "v2")], "workflows_ready workflows_pkey", 110),
    case("claim_limited", [*LIMITED, "v2", 4, *ranges("")], "workflows_ready", 110),
    case("history", [FINISHED[:4], -1, 1000, 1 << 20], "workflow_steps_pkey", 20),
    case("journal_commit", journal_writes(OWNED, "w0001", 1), "workflows_pkey workflow_payloads_pkey", 60),
    case("journal_commit", journal_writes(MANY, "w0050", 100), "workflows_pkey workflow_payloads_pkey", 1000),
    case(
        "transaction_step",
        [OWNED[0], "w0001", 1, 4, 9, 0, "1", None, "", "6000", "10000"],
        "workflows_pkey workflow_steps_pkey",
        5,
    ),
    case("transaction_settled", [OWNED[0]], "workflows_pkey", 1),
    case("idempotency_mark", ["ns", "k000001", "t", None], "", 1),
    case("idempotency_claim", ["ns", "k000001", "t", 30.0], "", 1),
    case("idempotency_read", ["ns", "k000001"], "idempotency_keys_pkey", 1),
    case("idempotency_renew", ["ns", "k000001", "t", 30.0], "idempotency_keys_pkey", 1),
    case("idempotency_finish", ["ns", "k000001", "t", None, None], "idempotency_keys_pkey", 1),
    case("idempotency_release", ["ns", "k000001", "t"], "idempotency_keys_pkey", 1),
    case("idempotency_sweep", [100], "idempotency_keys_expired idempotency_keys_pkey", 250),
    case(
        "journal_next", ["o000050", "w0001", 1, 3, 9, "1", 4, 10, "step", "[]"], "workflows_pkey workflow_steps_pkey", 8
    ),
    case(
        "journal_done",
        ["o000050", "w0001", 1, 3, 9, "1", "1"],
        "workflows_pkey workflow_steps_pkey workflow_payloads_pkey",
        10,
    ),
    case("journal_steps", journal_writes(OWNED, "w0001", 0), "workflows_pkey", 40),
    case("journal_locked", [IDS], "workflows_pkey", 600),
    case("journal_was_mine", ["f000001", 1, "w0001"], "workflows_pkey", 1),
    case("journal_steps_at", ["f000001", 1, [1, 2]], "workflow_steps_pkey", 3),
    case("run_upsert", ["new", *UPSERT], "workflows_pkey", 2),
    case("run_upsert", ["r000001", *UPSERT], "workflows_pkey", 4),
    case("run_cancel", [["r000001"], "Immediate", "why", True], "workflows_pkey", 4),
    case("run_cancel", [IDS, "Immediate", "why", True], "workflows_pkey", 600),
    case("run_gone", [IDS, "why"], "workflows_pkey", 600),
    case("manage_lock", [IDS], "workflows_pkey", 400),
    case("manage_resume", [FINISHED], "workflows_pkey workflows_children", 900),
    case("manage_delay", ["r000001", 60.0], "workflows_pkey", 2),
    case("manage_attributes", ["f000001", '{"a": 1}', ["b"]], "workflows_pkey", 2),
    case("manage_cut", ["f000001", "step"], "workflow_steps_pkey", 4),
    case("manage_children", ["f000001", 3, ['"c"']], "workflow_steps_pkey", 4),
    case("manage_rewind", ["f000001", 1], "workflows_pkey workflow_steps_pkey workflows_children", 20),
    case("manage_rewind_streams", ["f000001", 1], "streams_pkey stream_values_pkey", 60),
    case("manage_fork", ["f000001", "new", 2, [], [], []], "workflows_pkey workflow_steps_pkey messages_key", 20),
    case("manage_fork_streams", ["f000001", "new", 2], "streams_pkey stream_values_pkey", 60),
    case("manage_recorded", ["f000001", 1], "workflow_steps_pkey", 1),
    case("manage_step", ["o000050", 9, "perdure.cancel", 1, 99, "[]", "70"], "workflows_pkey", 4),
    case("list_newest", ["ns", True, True, True, *FROM, "1970-01-01", 500], LISTED, 1600),
    case("list_newest", ["ns", False, False, True, *FROM, "1970-01-01", 500], "workflows_listed_others", 600),
    case("list_oldest", ["ns", True, True, True, "1970-01-01", "", "9999-01-01", 500], LISTED, 1600),
    case("list_named", ["ns", IDS, None, None, True, *FROM, 101, None], "workflows_pkey", 300),
    case("list_named", ["ns", [], "p000001", None, True, *FROM, 101, None], "workflows_children", 300),
    case("list_named", ["ns", [], None, "f000001", False, "1970-01-01", "", 101, None], "workflows_forks", 10),
    case("list_named", ["ns", [], None, None, True, *FROM, 101, '{"a": 1}'], "workflows_attributes", 10),
    case("list_runs", [IDS, 100, True, True, "ns", *[None] * 14], "workflows_pkey workflow_payloads_pkey", 600),
    case("export_run", ["f000001"], "workflows_pkey workflow_payloads_pkey", 4),
    case("offload_payloads", ["f000001", 500, "!offload:"], "workflow_payloads_pkey", 500),
    case("offload_steps", ["f000001", "f000100", "!offload:"], "workflow_steps_pkey", 1200),
    case("offload_keys", ["", "", 500, "!offload:"], "idempotency_keys_pkey", 500),
    case("offload_others", ["!offload:"], "", 250_000),  # reads these tables whole
    case("list_steps", ["f000001", -1, 100, True], "workflows_pkey workflow_steps_pkey", 8),
    case("run_purge_calls", [100, 10_000], "workflows_gone messages_key event_waits_of", 2000),
    case(
        "retention_mark",
        ["ns", "default", 2592000, "2000-01-01T00:00:00Z", "", 200],
        "workflows_ended workflows_children",
        1500,
    ),
    case("run_purge_steps", [100, 10_000], "workflows_gone workflow_steps_pkey", 1500),
    case("run_purge", [100], "workflows_gone", 1000),
    case("run_ids", ["ns", "r000500", 500], "workflows_resource", 500),
    case("run_result", ["f000001"], "workflows_pkey workflow_payloads_pkey", 2),
    case("worker_register", ["new", "ns", "default", "p", "uid-1", "v1", [], [], 4, 30.0], "workers_pod", 5),
    case("worker_beat", ["w0001", 30.0], "workers_pkey workflows_owned", 10),
    case("worker_drain", ["w0001"], "workers_pkey", 1),
    case("worker_stop", ["w0001"], "workers_pkey", 1),
    case("worker_mark_expired", [20], "", 1000),
    case("worker_mark_dead", [["uid-1"]], "", 400),
    case("worker_retire", ["ns", "default", "v1"], "", 2000),
    case("worker_ended_owners", [20], "workflows_owned", 400),
    case("worker_move", [["w0001", "w0002"], 100], "workflows_owned workflow_steps_pkey", 60),
    case("worker_give_back", ["w0001", OWNED, [1] * len(OWNED)], "workflows_pkey", 20),
    case("worker_terminate", ["nobody"], "", 100),
    case("worker_forget", [3600.0, 100], "workflows_owned", 1000),
    case("sweep_wake", [100, 500, 2], "workflows_wake workflows_ready workflows_pkey", 850),
    case("sweep_retry_lock", [100], "workflows_retry", 120),
    case("sweep_retry_steps", [["p000040", "p000080"]], "workflow_steps_pkey", 20),
    case("sweep_retry", [["p000040", "p000080"]], "workflows_pkey", 5),
    case("sweep_overdue", [100], "workflows_deadline workflows_pkey", 350),
    case(
        "schedule_apply",
        ["ns", "", True, SCHEDULES, *([each] * 100 for each in SCHEDULE)],
        "",
        300,
    ),
    case("schedule_prune", ["none", "o", SCHEDULES], "schedules_pkey", 10),
    case("schedule_delete", ["ns", "s000001"], "schedules_pkey", 1),
    case("schedule_pause", ["ns", "s000001", True], "schedules_pkey", 1),
    case("schedule_read", ["ns", "s000100", 500], "schedules_pkey", 500),
    case("schedule_get", ["ns", "s000001"], "schedules_pkey", 1),
    case("schedule_inputs", ["ns", ["s000001"]], "schedules_pkey", 1),
    case("schedule_due", [20], "schedules_due schedules_queued workflows_scheduled schedules_pkey", 400),
    case("schedule_open", [["ns"] * 100, SCHEDULES, 100], "workflows_scheduled", 150),
    case("schedule_start", [["ns"] * 100, SCHEDULES, NEW[:100]], "schedules_pkey", 600),
    case(
        "schedule_decided",
        [
            ["ns"] * 100,
            SCHEDULES,
            *([each] * 100 for each in ("2026-01-01Z", None, None, None, None, 0, 0, None)),
            60.0,
        ],
        "schedules_pkey",
        300,
    ),
    case("debounce_lock", ["ns", "x", "k000001", "new", "call"], "", 1),
    case("debounce_postpone", ["p000004", "ns", "x", 5.0, 60.0, "[]"], "workflows_pkey", 5),
    case("debounce_done", ["ns", "x", "k000001", "p000004", "call", 16], "debounces_pkey workflows_pkey", 3),
    case("debounce_sweep", [100, 3600.0], "debounces_due workflows_pkey debounces_pkey", 500),
    case("status_read", [FINISHED, 100, 1024, 4096, 16384], "workflow_steps_pkey workflow_payloads_pkey", 1200),
    case("status_mark_reported", [FINISHED, [1] * 100], "workflow_steps_pkey", 800),
    case("status_due", [100], "workflows_status_due", 100),
    case("status_postpone", [IDS, 60.0], "workflows_pkey", 400),
    case(
        "backlog_pool", ["ns", "default", 2000, 30.0, 200], "workflows_open workflows_ready workflows_suspended", 30_000
    ),
    case("backlog_live_workers", ["ns", "default"], "", 250),
    case("backlog_unclaimed", ["ns", 500, 2.0, "r050000"], "workflows_unexplained workflows_explained", 1500),
    case("backlog_set_waiting", [IDS, [0] * 100, ['{"kind": "A"}'] * 100], "workflows_pkey", 500),
    case(
        "versions_register",
        ["ns", "default", "v1", [f"x{n}" for n in range(2, 52)], ["other"] * 50, ["auto"] * 50, True],
        "",
        200,
    ),
    case("versions_adopt", ["ns", "default", "v2", 500], "workflows_versions worker_versions_pkey", 2_500),
    case("versions_forget", [86_400.0, 100], "workflows_versions worker_versions_pkey", 20_000),
    case("backlog_queues", [2000], "workflows_ready", 10_000),
    case("backlog_limits", ["ns", 2000], "workflows_running", 200),
    case("queue_apply", ["ns", "q1", 3, None, 1, 100, 60.0, None, ""], "", 2),
    case("queue_create", ["ns", "new", 3, None, 1, 100, 60.0, False, ""], "", 1),
    case("queue_list", ["ns", None], "", 100),
    case("queue_list", ["ns", "q1"], "", 100),
    case("queue_pause", ["ns", "q1", True, ""], "queues_pkey", 2),
    case("queue_delete", ["ns", "q1", ""], "queues_pkey", 2),
    case("backlog_phases", [20_000], "workflows_open workflows_ready workflows_suspended", 45_000),
]

WITHOUT_TABLES = {
    "call_clock",
    "connections_most",
    "leader_claim",
    "leader_held",
    "leader_release",
    "leader_try",
    "migration_applied",
    "migration_lock",
    "migration_record",
    "migration_state",
    "migration_unlimited",
    "notify_ended",
    "notify_ready",
    "notify_streams",
    "ping",
    "role_settings",
    "transaction_begin",
}
"""Statements that touch no table of ours, or only the list of migrations."""
