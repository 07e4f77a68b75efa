"""What a worker remembers between claims, and how it shares its slots among queues and partitions."""

from datetime import UTC, datetime

from perdure.store.claims import Look, Place, RangeKey, Taken
from perdure.worker.floor import FAMILIAR, LONGEST_DOUBT, PASSED_OVER, TRUST_SECONDS, Floor, Next
from perdure.worker.turns import Turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key(partition: str = "", version: str = "", route: int = 7) -> RangeKey:
    return RangeKey(version, route, partition)


def place(run_id: str) -> Place:
    return Place(100, NOW, run_id)


def look(*partitions: str, cut: bool = False) -> Look:
    return Look({key(each): place("a") for each in partitions}, cut)


def taken(counts: dict[str, int], last: str = "b") -> Taken:
    """So many runs of each partition were past their deadline, which counts as taken."""
    return Taken([], {key(each): place(last) for each in counts}, counts, sum(counts.values()))


def claim(floor: Floor, counts: dict[str, int], wanted: int, last: str = "b") -> list[str]:
    """A claim of so many runs that got these; the partitions that it was offered."""
    ranges, asked = floor.offer(wanted)
    floor.took(taken(counts, last), asked)
    return [range_key.partition_key for range_key, _ in ranges]


def ready(*partitions: str, cut: bool = False, now: float = 100.0, seconds: float = 0.001) -> Floor:
    floor = Floor()
    floor.begin()
    assert floor.next(now - seconds) is Next.LOOK
    floor.found(look(*partitions, cut=cut), now, seconds)
    return floor


def test_the_first_claim_looks_and_then_takes_from_what_was_found() -> None:
    floor = ready("")
    assert floor.next(100.0) is Next.TAKE
    assert floor.offer(4) == ([(key(), place("a"))], 4)


def test_claims_go_on_from_the_last_place_without_a_look() -> None:
    floor = ready("")
    claim(floor, {"": 4}, 4, "d")
    floor.begin()
    assert floor.next(100.1) is Next.TAKE
    assert floor.offer(4) == ([(key(), place("d"))], 4)


def test_what_is_remembered_is_doubted_after_a_while_and_at_news() -> None:
    floor = ready("")
    claim(floor, {"": 4}, 4)
    assert floor.next(100.0 + TRUST_SECONDS - 0.01) is Next.TAKE
    assert floor.next(100.0 + TRUST_SECONDS) is Next.LOOK
    floor.news()
    assert floor.next(100.1) is Next.LOOK


def test_a_short_claim_leads_to_a_look_and_an_empty_look_to_nothing() -> None:
    floor = ready("")
    claim(floor, {"": 3}, 4)
    assert floor.next(100.1) is Next.LOOK
    floor.found(Look({}, False), 100.1, 0.001)
    assert floor.next(100.2) is Next.NOTHING
    assert floor.look_in(100.2) is None


def test_news_that_are_of_no_familiar_range_lead_to_a_look() -> None:
    floor = ready("")
    claim(floor, {"": 1}, 4, "b")
    floor.found(Look({}, False), 100.1, 0.001)

    floor.news()
    floor.begin()

    assert floor.next(101.0) is Next.TAKE
    claim(floor, {}, 4)
    assert floor.next(101.0) is Next.LOOK


def test_an_idle_worker_claims_from_familiar_ranges_before_it_looks() -> None:
    floor = ready("")
    claim(floor, {"": 1}, 4, "b")
    floor.found(Look({}, False), 100.1, 0.001)

    floor.news()

    assert floor.next(101.0) is Next.TAKE
    assert floor.offer(4) == ([(key(), place("b"))], 4)
    claim(floor, {"": 1}, 4, "c")
    assert floor.next(101.0) is Next.LOOK


def test_a_full_claim_from_familiar_ranges_is_followed_by_a_look() -> None:
    """Others may have become ready where nothing is known."""
    floor = ready("")
    claim(floor, {"": 1}, 4)
    floor.found(Look({}, False), 100.1, 0.001)
    floor.news()
    claim(floor, {"": 4}, 4)
    assert floor.next(101.0) is Next.LOOK


def test_a_dear_look_is_put_off_but_not_for_ever() -> None:
    floor = ready("", seconds=0.2)
    floor.news()
    assert floor.next(101.0) is Next.TAKE
    assert floor.next(102.0) is Next.LOOK
    floor = ready("", seconds=60.0)
    claim(floor, {"": 1}, 4)
    assert floor.next(101.0) is Next.NOTHING
    assert floor.look_in(101.0) == LONGEST_DOUBT - 1.0
    assert floor.next(100.0 + LONGEST_DOUBT) is Next.LOOK


def test_what_cannot_be_taken_although_it_was_just_seen_is_not_asked_for_again_at_once() -> None:
    """Somebody holds the rows: looking and taking in a circle would only keep the database busy."""
    floor = ready("")
    claim(floor, {}, 4)
    assert floor.next(200.0) is Next.NOTHING
    assert floor.look_in(200.0) is None
    floor.begin()
    assert floor.next(200.0) is Next.LOOK


def test_a_partition_whose_runs_others_hold_has_had_its_turn() -> None:
    """Else a claim for one slot would ask for the same one for ever."""
    floor = ready("a", "b", "c")
    assert claim(floor, {}, 1) == ["a"]
    assert floor.next(100.0) is Next.TAKE
    assert claim(floor, {"b": 1}, 1) == ["b"]
    assert claim(floor, {}, 1) == ["c"]
    assert claim(floor, {"b": 1}, 1) == ["b"]


def test_when_others_hold_all_of_them_it_is_left_for_later() -> None:
    floor = ready("a", "b")
    assert claim(floor, {}, 1) == ["a"]
    assert claim(floor, {}, 1) == ["b"]
    assert floor.next(200.0) is Next.NOTHING


def test_partitions_take_turns() -> None:
    floor = ready("", "a", "b")
    served = []
    for _ in range(6):
        ranges, asked = floor.offer(1)
        assert asked == 1
        [(range_key, _)] = ranges
        served.append(range_key.partition_key)
        claim(floor, {range_key.partition_key: 1}, 1)
    assert served == ["a", "b", "", "a", "b", ""]


def test_after_an_uneven_claim_the_turn_is_with_those_that_got_less() -> None:
    floor = ready("", "a", "b")
    claim(floor, {"a": 2, "b": 1, "": 1}, 4)
    assert [each.partition_key for each, _ in floor.offer(3)[0]] == ["b", "", "a"]


def test_all_ranges_of_a_partition_are_offered_together() -> None:
    floor = Floor()
    ranges = {key("a"): place("1"), key("a", "v1"): place("2"), key("b"): place("3")}
    floor.found(Look(ranges, False), 1.0, 0.001)
    assert [each for each, _ in floor.offer(1)[0]] == [key("a"), key("a", "v1")]


def test_with_more_partitions_than_a_look_shows_each_has_one_turn_until_the_next_look() -> None:
    floor = ready("a", "b", "c", cut=True)
    ranges, asked = floor.offer(2)
    assert ([each.partition_key for each, _ in ranges], asked) == (["a", "b"], 2)
    claim(floor, {"a": 1, "b": 1}, 2)
    ranges, asked = floor.offer(10)
    assert ([each.partition_key for each, _ in ranges], asked) == (["c"], 1)
    claim(floor, {"c": 1}, 1)
    assert floor.served_last == "c"
    assert floor.next(100.0) is Next.LOOK


def test_partitions_at_their_limits_are_passed_over_and_those_behind_looked_at_but_not_for_ever() -> None:
    floor = ready("a", "b", cut=True)
    nothing = Taken([], {}, {}, 0, room=4)
    now = 100.0
    for _ in range(PASSED_OVER):
        ranges, asked = floor.offer(1, 100)
        assert ([each.partition_key for each, _ in ranges], asked) == (["a", "b"], 1)
        floor.took(nothing, asked)
        assert floor.served_last == "b"
        wait = floor.look_in(now)
        assert wait is not None and wait > 0, "looks keep their share of the time"
        now += 1.0
        assert floor.next(now) is Next.LOOK
        floor.found(look("a", "b", cut=True), now, 0.001)
    floor.offer(1, 100)
    floor.took(nothing, 1)
    assert floor.look_in(now) is None
    assert floor.next(now + 10) is Next.NOTHING


def test_a_bounded_number_of_ranges_stays_familiar() -> None:
    floor = ready(*(f"p{n}" for n in range(20)))
    claim(floor, {f"p{n}": 1 for n in range(20)}, 40)
    floor.found(Look({}, False), 101.0, 0.001)
    floor.news()
    assert len(floor.offer(100)[0]) == FAMILIAR


def test_queues_take_turns_behind_the_one_served_last() -> None:
    turns = Turns(["a", "b", "c", "a"])
    assert turns.order() == ["a", "b", "c"]
    turns.served("b")
    assert turns.order() == ["c", "a", "b"]
    turns.served("c")
    assert turns.order() == ["a", "b", "c"]


def test_slots_are_shared_equally_and_none_stays_free() -> None:
    assert [Turns.share(free, 3) for free in (0, 1, 3, 4, 9)] == [0, 1, 1, 2, 3]
