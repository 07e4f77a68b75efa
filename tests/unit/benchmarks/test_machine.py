import os
import subprocess
import sys

from benchmarks import machine

NOBODY = 0
BURN = "import sys; sum(range(3_000_000)); print('done', flush=True); sys.stdin.read()"


def test_a_group_uses_what_its_processes_and_their_children_use() -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"done\n"
        processor, memory = machine.usage({"both": [process.pid], "none": []})
        process.stdin.close()
    assert processor["both"] > 0
    assert memory["both"] > memory["none"] == 0


def test_a_process_that_is_gone_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert machine.usage({"gone": [process.pid]}) == ({"gone": 0}, {"gone": 0})


def test_the_machine_has_been_busy() -> None:
    busy = machine.busy()
    assert 0 <= busy.stolen <= busy.used < busy.total


def test_what_this_process_does_is_not_of_others() -> None:
    others = machine.Others(os.getpid())
    everything = machine.Others(NOBODY)
    assert sum(range(5_000_000))
    assert 0 <= others.percent() < everything.percent()


async def test_no_wait_for_idleness_where_none_is_wanted() -> None:
    assert await machine.until_idle(0.0) == 0.0


def test_the_facts_say_how_many_cores() -> None:
    assert machine.facts()["cores"] == os.cpu_count()
