"""`perdure lint`: what it finds in bodies of workflows, and what it leaves alone."""

import textwrap
from pathlib import Path

import pytest
from perdure.lint import rules
from perdure.lint.check import check

HEAD = """
import asyncio, os, random, time, uuid
import datetime as dt
import requests
from asyncio import sleep, wait_for
from datetime import datetime
from random import choice
import perdure
from perdure import Client, workflow, step
"""


def found(body: str, head: str = HEAD, decorator: str = "@perdure.workflow") -> list[str]:
    """Codes, in order of place."""
    text = f"{head}\n{decorator}\nasync def flow(x):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    return [finding.code for finding in check(text, "flows.py")]


BAD = [
    ("PDL01", "time.time()"),
    ("PDL01", "datetime.now()"),
    ("PDL01", "dt.datetime.now(dt.UTC)"),
    ("PDL01", "dt.date.today()"),
    ("PDL01", "asyncio.get_running_loop().time()"),
    ("PDL02", "random.random()"),
    ("PDL02", "random.Random()"),
    ("PDL02", "choice([1, 2])"),
    ("PDL02", "uuid.uuid4()"),
    ("PDL02", "os.urandom(8)"),
    ("PDL03", "await asyncio.sleep(1)"),
    ("PDL03", "await sleep(1)"),
    ("PDL03", "time.sleep(1)"),
    ("PDL04", "await wait_for(charge(1), 5)"),
    ("PDL04", "async with asyncio.timeout(5): await charge(1)"),
    ("PDL04", "await asyncio.wait([charge(1)])"),
    ("PDL04", "for each in asyncio.as_completed([charge(1)]): await each"),
    ("PDL05", "asyncio.create_task(charge(1))"),
    ("PDL05", "asyncio.ensure_future(charge(1))"),
    ("PDL05", "asyncio.get_running_loop().create_task(charge(1))"),
    ("PDL06", "await asyncio.gather(charge(1), charge(2))"),
    ("PDL06", "await asyncio.gather(charge(1), charge(2), return_exceptions=x)"),
    ("PDL07", "try:\n    await charge(1)\nexcept BaseException:\n    pass"),
    ("PDL07", "try:\n    await charge(1)\nexcept:\n    pass"),
    ("PDL07", "try:\n    await charge(1)\nexcept (ValueError, asyncio.CancelledError):\n    pass"),
    ("PDL08", "try:\n    await charge(1)\nfinally:\n    await charge(2)"),
    ("PDL09", "for each in {1, 2}:\n    await charge(each)"),
    ("PDL09", "[charge(each) for each in set(x)]"),
    ("PDL10", "client = Client()"),
    ("PDL10", "async with perdure.Client() as client: pass"),
    ("PDL11", "requests.get(x)"),
    ("PDL11", "open(x)"),
    ("PDL11", "os.environ['HOME']"),
    ("PDL11", "os.environ.get('HOME')"),
    ("PDL11", "await asyncio.to_thread(x)"),
    ("PDL12", "try:\n    async with asyncio.TaskGroup() as group: pass\nexcept* ValueError:\n    pass"),
    ("PDL13", "await perdure.gather(charge(1), perdure.patch('x'))"),
    ("PDL13", "await perdure.select(a=charge(1), b=perdure.debounce('x'))"),
]


@pytest.mark.parametrize(("code", "body"), BAD, ids=[f"{code} {body}" for code, body in BAD])
def test_what_a_replay_would_not_do_again_is_found(code: str, body: str) -> None:
    assert found(body) == [code]


FINE = [
    "await perdure.sleep(1)",
    "await perdure.gather(charge(1), charge(2))",
    "await asyncio.gather(charge(1), charge(2), return_exceptions=True)",
    "await perdure.select(paid=charge(1), late=perdure.sleep(5))",
    "await perdure.now()",
    "perdure.uuid4()",
    "perdure.random().choice([1, 2])",
    "random.Random(7).random()",
    "datetime.fromisoformat(x)",
    "dt.timedelta(seconds=5)",
    "uuid.uuid5(uuid.NAMESPACE_URL, x)",
    "async with asyncio.TaskGroup() as group:\n    group.create_task(charge(1))",
    "try:\n    await charge(1)\nexcept Exception:\n    await charge(2)",
    "try:\n    await charge(1)\nexcept BaseException:\n    raise",
    "try:\n    await charge(1)\nexcept BaseException as error:\n    print(error)\n    raise error",
    "try:\n    await charge(1)\nfinally:\n    print(x)",
    "for each in sorted({1, 2}):\n    await charge(each)",
    "for each in {1, 2}:\n    total = each",
    "time = x; time",
]


@pytest.mark.parametrize("body", FINE)
def test_what_is_the_same_at_a_replay_is_left_alone(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    "decorator",
    ["@workflow", "@workflow(name='x')", "@perdure.workflow(name='x')", "@app.workflow", "@other\n@workflow"],
)
def test_a_body_is_known_by_its_decorator_however_it_is_written(decorator: str) -> None:
    assert found("time.time()", decorator=decorator) == ["PDL01"]


@pytest.mark.parametrize("decorator", ["@step", "@perdure.step(max_attempts=3)", "@perdure.transaction", "@other"])
def test_steps_and_functions_that_are_no_workflow_may_do_what_they_like(decorator: str) -> None:
    assert found("time.time()", decorator=decorator) == []


def test_a_helper_that_a_body_calls_is_part_of_it_and_a_step_is_not() -> None:
    text = HEAD + textwrap.dedent(
        """
        def helper():
            return deeper()

        def deeper():
            return time.time()

        @step
        async def leaf():
            return time.time()

        def unused():
            return time.time()

        @workflow
        async def flow():
            helper()
            await leaf()
        """
    )
    [finding] = check(text, "flows.py")
    assert text.splitlines()[finding.line - 1].strip() == "return time.time()"
    assert "(in workflow flow)" in finding.message
    assert finding.line < text.splitlines().index("@step")


def test_functions_within_a_body_are_part_of_it() -> None:
    assert found("async def inner():\n    return time.time()\nawait inner()") == ["PDL01"]


def test_a_comment_allows_a_rule_on_its_line_and_no_other() -> None:
    assert found("time.time()  # perdure: allow=PDL01") == []
    assert found("time.time()  # perdure: allow=PDL01, PDL02") == []
    assert found("time.time()  # perdure: allow=PDL02") == ["PDL01"]
    assert found("time.time()\nx = 1  # perdure: allow=PDL01") == ["PDL01"]
    assert found("time.strftime(\n    time.ctime(),  # perdure: allow=PDL01\n)") == []


def test_a_finding_says_where_it_is_and_what_to_write_instead() -> None:
    text = "import time\nimport perdure\n\n@perdure.workflow\nasync def flow():\n    at = time.time()\n"
    [finding] = check(text, "flows.py")
    assert str(finding) == (
        "flows.py:6:10: PDL01 time.time differs at a replay; use perdure.now(), or let a step look at the clock "
        "(in workflow flow)"
    )


def test_names_that_only_look_alike_are_none() -> None:
    assert found("time.time()\nasyncio.sleep(1)", head="import perdure\nfrom mine import time, asyncio") == []


def test_the_guide_has_each_rule_and_no_other() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "deterministic-bodies.md").read_text()
    listed = [line.split("|")[1].strip().strip("`") for line in guide.splitlines() if line.startswith("| `PDL")]
    assert listed == [rule.code for rule in rules.RULES]


def test_no_code_stands_for_two_rules() -> None:
    codes = [rule.code for rule in rules.RULES]
    assert len(codes) == len(set(codes))
