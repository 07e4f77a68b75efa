"""From a prepared start to its row, and whether two starts are the same."""

from datetime import timedelta
from typing import Any

import perdure
import pytest
from perdure.api import PreparedStart
from perdure.client.starts import BATCH_BYTES, BATCH_RUNS, batches, distinct, refuse_other, row_of
from perdure.engine.registry import Registry
from perdure.errors import ConflictingWorkflow, EncodingFailed, InvalidArgument
from perdure.store.clients import ExistingRun


@perdure.workflow(name="order", registry=Registry())
async def order(order_id: str, items: list[str] | set[str] | None = None, *, currency: str = "EUR") -> str:
    return order_id


def there(run_id: str = "x", namespace: str = "ns", workflow: str = "order", text: str = '["1"]') -> ExistingRun:
    return ExistingRun(run_id, namespace, workflow, text)


def refused(start: PreparedStart[Any], run: ExistingRun) -> str:
    with pytest.raises(ConflictingWorkflow) as error:
        refuse_other(start, row_of(start, "default"), run, "ns")
    return error.value.message


def test_a_start_without_options_gets_the_defaults_and_an_id_of_its_own() -> None:
    start = order.prepare("1", currency="USD")
    one, two = row_of(start, "batch"), row_of(start, "batch")

    assert one.id != two.id
    assert (one.workflow, one.input) == ("order", '["1",null,"USD"]')
    assert (one.pool, one.queue, one.priority, one.partition_key) == ("batch", "default", 100, "")
    assert (one.timeout, one.delay) == (None, None)


def test_options_win() -> None:
    options = {"id": "x", "queue": "q", "pool": "p", "priority": 7, "partition_key": "k"}
    row = row_of(order.options(timeout=timedelta(minutes=1), delay=2, **options).prepare("1"), "batch")  # type: ignore[arg-type]

    assert (row.id, row.queue, row.pool, row.priority, row.partition_key) == ("x", "q", "p", 7, "k")
    assert (row.timeout, row.delay) == (60.0, 2.0)


def test_arguments_that_cannot_be_recorded_are_refused_before_anything_is_written() -> None:
    with pytest.raises(EncodingFailed, match="the input of workflow order"):
        order.prepare("\x00")
    with pytest.raises(TypeError, match="order_id"):
        order.prepare()  # type: ignore[call-arg]


@pytest.mark.parametrize("given", ["1", b"1", 1, None, {"1"}], ids=repr)
async def test_arguments_that_are_neither_a_list_nor_a_dict_are_refused(given: Any) -> None:
    async with perdure.Client("postgresql://nobody@127.0.0.1:1/none") as client:
        with pytest.raises(InvalidArgument, match="the arguments of workflow order are a list by position or a dict"):
            await client.start_by_name("order", given)
    with pytest.raises(InvalidArgument, match="a list by position"):
        perdure.Schedule("daily", "0 0 * * *", "order", given)


@pytest.mark.parametrize("given", ["order", len, None], ids=repr)
async def test_what_is_no_workflow_is_refused_with_what_to_do_instead(given: Any) -> None:
    async with perdure.Client("postgresql://nobody@127.0.0.1:1/none") as client:
        for start in (client.start, client.run):
            with pytest.raises(InvalidArgument, match=r"decorated with @perdure\.workflow.*start_by_name"):
                await start(given)


def test_the_same_start_is_no_conflict_whatever_the_order_of_a_set() -> None:
    start = order.options(id="x").prepare("1", {"a", "b"})
    for text in ('["1",["a","b"]]', '["1",["b","a"]]', '["1", ["a", "b"]]'):
        refuse_other(start, row_of(start, "default"), there(text=text), "ns")


def test_an_id_of_another_run_is_a_conflict_that_names_the_difference() -> None:
    start = order.options(id="x").prepare("1")

    assert "of workflow refund, not order" in refused(start, there(workflow="refund"))
    assert "in namespace other, not ns" in refused(start, there(namespace="other"))
    assert "another input" in refused(start, there(text='["2"]'))
    assert "another input" in refused(start, there(text="[]"))


def test_an_id_twice_in_one_list_is_one_run_if_it_is_the_same_start() -> None:
    same = [order.options(id="x").prepare("1"), order.options(id="x").prepare("1"), order.prepare("1")]
    pairs = [(start, row_of(start, "default")) for start in same]
    assert len(distinct(pairs)) == 2

    other = order.options(id="x").prepare("2")
    with pytest.raises(ConflictingWorkflow, match="another input"):
        distinct([*pairs, (other, row_of(other, "default"))])


def test_batches_are_bounded_in_number_and_in_bytes_and_keep_the_order() -> None:
    small = [order.prepare(str(number)) for number in range(BATCH_RUNS * 2 + 1)]
    found = list(batches(iter(small)))
    assert [len(batch) for batch in found] == [BATCH_RUNS, BATCH_RUNS, 1]
    assert [start for batch in found for start in batch] == small

    large = [order.prepare("x" * (BATCH_BYTES // 5)) for _ in range(9)]
    assert [len(batch) for batch in batches(large)] == [4, 4, 1]
    assert list(batches([])) == []
