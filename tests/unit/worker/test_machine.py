"""Slots, beats and stopping as values: each table line is one thing that may happen to a worker."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from perdure.model.rows import ClaimedRun, OwnedRun
from perdure.model.states import CancelMode, Undo
from perdure.worker.machine import (
    ForceRelease,
    GiveBack,
    Instruction,
    Interrupt,
    Machine,
    Phase,
    RunKey,
    Start,
    Stop,
)


def claimed(run_id: str, fence: int = 1) -> ClaimedRun:
    return ClaimedRun(
        id=run_id,
        fence=fence,
        namespace="ns",
        name=None,
        workflow="w",
        input="{}",
        definition=None,
        run_attempts=0,
        max_run_attempts=1,
        recoveries=0,
        wake_seq=0,
        cancel_mode=None,
        suspended=False,
        deadline_in=None,
    )


def row(
    run_id: str, fence: int = 1, *, cancel: CancelMode | None = None, suspended: bool = False, late: bool = False
) -> OwnedRun:
    return OwnedRun(id=run_id, fence=fence, cancel_mode=cancel, suspended=suspended, deadline_passed=late)


def with_runs(*ids: str, slots: int = 4) -> Machine:
    machine = Machine(slots)
    machine.claim_sent(1)
    machine.claim_answered([claimed(run_id) for run_id in ids])
    machine.validate()
    return machine


def beat(machine: Machine, *rows: OwnedRun) -> list[Instruction]:
    instructions = machine.beat(machine.pong(), rows)
    machine.validate()
    return instructions


def test_claimed_runs_take_slots_until_they_leave() -> None:
    machine = Machine(2)
    machine.claim_sent(1)
    runs = [claimed("a"), claimed("b")]
    assert machine.claim_answered(runs) == [Start(run) for run in runs]
    assert (machine.free, machine.busy) == (0, 2)
    machine.run_left(RunKey("a", 1))
    assert (machine.free, machine.busy) == (1, 1)


def test_a_quiet_beat_says_nothing() -> None:
    assert beat(with_runs("a", "b"), row("a"), row("b")) == []


def test_a_run_that_is_no_longer_ours_is_stopped_once() -> None:
    machine = with_runs("a", "b")
    assert beat(machine, row("b")) == [Interrupt(RunKey("a", 1), Stop.LOST)]
    assert beat(machine, row("b")) == []


def test_another_fence_is_another_owner() -> None:
    machine = with_runs("a")
    assert beat(machine, row("a", 2)) == [Interrupt(RunKey("a", 1), Stop.LOST)]


def test_a_beat_that_read_before_the_claim_says_nothing_about_it() -> None:
    machine = Machine(4)
    stamp = machine.pong()
    machine.claim_sent(1)
    machine.claim_answered([claimed("a")])
    assert machine.beat(stamp, []) == []


def test_a_run_whose_ending_is_being_written_may_be_gone() -> None:
    machine = with_runs("a")
    machine.run_ending(RunKey("a", 1))
    assert beat(machine) == []


@pytest.mark.parametrize(
    ("owned", "why"),
    [
        (row("a", cancel=CancelMode.IMMEDIATE), Stop.CANCEL_IMMEDIATE),
        (row("a", cancel=CancelMode.GRACEFUL), Stop.CANCEL_GRACEFUL),
        (row("a", cancel=CancelMode.COMPENSATE), Stop.CANCEL_GRACEFUL),
        (row("a", suspended=True), Stop.SUSPEND),
        (row("a", late=True), Stop.DEADLINE),
        (row("a", cancel=CancelMode.GRACEFUL, suspended=True), Stop.CANCEL_GRACEFUL),
    ],
)
def test_flags_of_the_row_stop_the_body_once(owned: OwnedRun, why: Stop) -> None:
    machine = with_runs("a")
    assert beat(machine, owned) == [Interrupt(RunKey("a", 1), why)]
    assert beat(machine, owned) == []


def test_a_run_that_undoes_its_steps_is_not_stopped_by_the_cancel_that_it_does_it_for() -> None:
    machine = Machine(4)
    machine.claim_sent(1)
    machine.claim_answered([replace(claimed("a"), undo=Undo.REQUESTED, cancel_mode=CancelMode.COMPENSATE)])
    assert beat(machine, row("a", cancel=CancelMode.COMPENSATE)) == []
    assert beat(machine, row("a", cancel=CancelMode.IMMEDIATE)) == [Interrupt(RunKey("a", 1), Stop.CANCEL_IMMEDIATE)]


def test_a_stronger_reason_is_told_again() -> None:
    machine = with_runs("a")
    asked = [
        beat(machine, row("a", suspended=True)),
        machine.drain(),
        beat(machine, row("a", cancel=CancelMode.GRACEFUL)),
        beat(machine, row("a", cancel=CancelMode.IMMEDIATE)),
        beat(machine),
    ]
    assert [one.why for (one,) in asked if isinstance(one, Interrupt)] == [
        Stop.SUSPEND,
        Stop.DRAIN,
        Stop.CANCEL_GRACEFUL,
        Stop.CANCEL_IMMEDIATE,
        Stop.LOST,
    ]


def test_an_unknown_run_is_given_back_after_two_beats() -> None:
    machine = Machine(4)
    assert beat(machine, row("x")) == []
    assert beat(machine, row("x")) == [GiveBack((RunKey("x", 1),))]


def test_beats_that_show_it_must_be_consecutive() -> None:
    machine = Machine(4)
    assert [beat(machine, row("x")), beat(machine), beat(machine, row("x"))] == [[], [], []]


def test_nothing_is_given_back_while_a_claim_is_on_its_way() -> None:
    machine = Machine(4)
    machine.claim_sent(1)
    assert [beat(machine, row("x")) for _ in range(3)] == [[], [], []]
    machine.claim_answered([claimed("x")])
    assert beat(machine, row("x")) == []


def test_what_a_failed_claim_left_is_given_back() -> None:
    machine = Machine(4)
    machine.claim_sent(1)
    beat(machine, row("x"))
    machine.claim_failed()
    assert beat(machine, row("x")) == []
    assert beat(machine, row("x")) == [GiveBack((RunKey("x", 1),))]


def test_a_run_that_is_being_started_here_has_its_slot_and_is_not_unknown() -> None:
    machine = Machine(2)
    machine.start_sent("x")
    assert machine.free == 1
    assert [beat(machine, row("x")) for _ in range(3)] == [[], [], []]
    run = claimed("x")
    assert machine.start_answered("x", run) == [Start(run)]
    assert (machine.free, machine.busy) == (1, 1)


def test_a_start_that_made_nothing_leaves_its_slot() -> None:
    machine = Machine(2)
    machine.start_sent("x")
    assert machine.start_answered("x", None) == []
    assert machine.free == 2


def test_a_start_of_which_nothing_is_known_goes_to_the_queue() -> None:
    machine = Machine(2)
    machine.start_sent("x")
    assert machine.start_failed(RunKey("x", 1)) == [GiveBack((RunKey("x", 1),))]
    assert machine.free == 2


def test_a_failed_start_of_a_run_that_is_held_here_takes_it_from_nobody() -> None:
    machine = with_runs("x")
    machine.start_sent("x")
    assert machine.start_failed(RunKey("x", 1)) == []


def test_a_run_that_was_started_here_while_the_worker_began_to_drain_goes_to_the_queue() -> None:
    machine = Machine(2)
    machine.start_sent("x")
    machine.drain()
    assert machine.start_answered("x", claimed("x")) == [GiveBack((RunKey("x", 1),))]


def test_slots_of_a_claim_on_its_way_are_not_free() -> None:
    machine = Machine(4)
    machine.claim_sent(3)
    assert machine.free == 1
    machine.claim_answered([claimed("a")])
    assert machine.free == 3


def test_a_run_claimed_again_while_its_old_body_unwinds() -> None:
    machine = with_runs("a")
    machine.claim_sent(1)
    again = claimed("a", 3)
    assert machine.claim_answered([again]) == [Interrupt(RunKey("a", 1), Stop.LOST), Start(again)]
    machine.run_left(RunKey("a", 1))
    assert beat(machine, row("a", 3)) == []


def test_a_draining_worker_claims_nothing_and_gives_back_what_comes() -> None:
    machine = with_runs("a")
    machine.claim_sent(1)
    assert machine.drain() == [Interrupt(RunKey("a", 1), Stop.DRAIN)]
    assert machine.free == 0
    assert machine.claim_answered([claimed("b")]) == [GiveBack((RunKey("b", 1),))]
    assert machine.drain() == []


def test_force_releases_what_still_executes() -> None:
    machine = with_runs("a", "b")
    machine.drain()
    machine.run_ending(RunKey("a", 1))
    assert machine.force() == [ForceRelease(RunKey("b", 1))]


def test_a_lost_registration_stops_everything_and_says_no_more() -> None:
    machine = with_runs("a", "b")
    machine.run_ending(RunKey("b", 1))
    told = machine.lost()
    assert told == [Interrupt(RunKey("a", 1), Stop.ABANDON), Interrupt(RunKey("b", 1), Stop.ABANDON)]
    assert machine.lost() == []
    assert machine.drain() == []
    assert beat(machine, row("x"), row("x2")) == []
    machine.claim_sent(1)
    assert machine.claim_answered([claimed("c")]) == []
    assert machine.phase is Phase.LOST


def test_phases_never_go_back() -> None:
    machine = Machine(1)
    phases = [machine.phase]
    for event in (machine.drain, machine.drain, machine.lost, machine.drain):
        event()
        phases.append(machine.phase)
    assert phases == [Phase.LIVE, Phase.DRAINING, Phase.DRAINING, Phase.LOST, Phase.LOST]


class MachineRules(RuleBasedStateMachine):
    """Any order of events: the state never contradicts itself, and each body is told to stop ever more strongly."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(3)
        self.claiming = 0
        self.starting: list[str] = []
        self.fence = 0
        self.told: dict[RunKey, list[Stop]] = {}

    def note(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Interrupt):
                self.told.setdefault(one.key, []).append(one.why)
            if isinstance(one, Interrupt | ForceRelease):
                assert self.machine.holds(one.key)
            if isinstance(one, GiveBack):
                assert not any(self.machine.holds(key) for key in one.keys)

    @rule()
    def claim(self) -> None:
        if self.machine.free and not self.claiming:
            self.claiming = self.machine.free
            self.machine.claim_sent(self.claiming)

    @rule()
    def start(self) -> None:
        if self.machine.free:
            self.fence += 1
            self.starting.append(f"s{self.fence}")
            self.machine.start_sent(self.starting[-1])

    @rule(target=runs, made=st.booleans())
    def started(self, made: bool) -> object:
        if not self.starting:
            return multiple()
        run_id = self.starting.pop()
        self.note(self.machine.start_answered(run_id, claimed(run_id) if made else None))
        return multiple(*([RunKey(run_id, 1)] if made else []))

    @rule()
    def start_lost(self) -> None:
        if self.starting:
            self.note(self.machine.start_failed(RunKey(self.starting.pop(), 1)))

    @rule(target=runs, count=st.integers(0, 3), name=st.sampled_from("abcdef"))
    def answer(self, count: int, name: str) -> object:
        if not self.claiming:
            return multiple()
        asked, self.claiming = self.claiming, 0
        claims = []
        for offset in range(min(count, asked)):
            self.fence += 1
            claims.append(claimed(f"{name}{offset}", self.fence))
        self.note(self.machine.claim_answered(claims))
        return multiple(*(RunKey(run.id, run.fence) for run in claims))

    @rule()
    def fail(self) -> None:
        if self.claiming:
            self.claiming = 0
            self.machine.claim_failed()

    @rule(key=runs)
    def ending(self, key: RunKey) -> None:
        self.machine.run_ending(key)

    @rule(key=consumes(runs))
    def left(self, key: RunKey) -> None:
        self.machine.run_left(key)

    @rule(keys=st.lists(runs, unique=True), cancel=st.sampled_from([None, *CancelMode]), unknown=st.booleans())
    def beaten(self, keys: list[RunKey], cancel: CancelMode | None, unknown: bool) -> None:
        rows = [row(key.id, key.fence, cancel=cancel) for key in keys]
        self.note(self.machine.beat(self.machine.pong(), rows + ([row("u", 999)] if unknown else [])))

    @rule()
    def drain(self) -> None:
        self.note(self.machine.drain())

    @rule()
    def force(self) -> None:
        self.note(self.machine.force())

    @rule()
    def lose(self) -> None:
        self.note(self.machine.lost())

    @invariant()
    def consistent(self) -> None:
        self.machine.validate()
        strength = list(Machine._STRENGTH)
        for whys in self.told.values():
            assert all(strength.index(a) < strength.index(b) for a, b in pairwise(whys))


MachineRules.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMachineRules = MachineRules.TestCase
