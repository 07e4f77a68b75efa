"""What a program must come to, whatever happens meanwhile. Pure: walks through the nodes as the body would.

Gives the status, the output, and for each index the step that must be recorded there, with how many failures and how
many executions of its body at least.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from perdure.errors import EncodingFailed, PayloadTooLarge
from perdure.model.states import RunStatus, StepStatus

from tests.faults.expectation import STEP_NAMES, Ends, Expected, ExpectedStep
from tests.faults.programs import LISTENS, MAKERS, SPEAKS, WATCHES, Node, Program, heard, mixed


def expected(program: Program, run_id: str) -> Expected:
    """What must come of the program, run under this id."""
    walk = _Walk(program, run_id)
    try:
        value = walk.sequence(program.nodes, 0)
    except Ends as end:
        walk.found.status, walk.found.code, walk.found.error = end.status, end.code, end.error
        walk.found.run_attempts = program.max_run_attempts if end.status is RunStatus.FAILED else 0
    else:
        walk.found.output = json.dumps(value)
    return walk.found


class _Walk:
    def __init__(self, program: Program, run_id: str) -> None:
        self._program = program
        self._run_id = run_id
        self._together: int | None = None
        self.found = Expected()

    @contextmanager
    def together(self) -> Iterator[None]:
        """The steps in here wait for those before, and not for one another."""
        self._together = len(self.found.steps)
        yield
        self._together = None

    def sequence(self, nodes: list[Node], value: int) -> int:
        for node in nodes:
            value = EXPECTATIONS[node["kind"]](self, node, value)
        return value

    def _step(
        self,
        kind: str,
        *,
        status: StepStatus | None = StepStatus.SUCCEEDED,
        output: int | None = None,
        failures: int = 0,
        bodies: int = 1,
        repeats: int = 1,
        first: ExpectedStep | None = None,
    ) -> None:
        text = None if output is None else json.dumps(output)
        numbers = tuple(range(1, bodies + 1))
        self._add(ExpectedStep(STEP_NAMES[kind], status, text, failures, numbers, repeats, first))

    def _add(self, step: ExpectedStep) -> None:
        needs = len(self.found.steps) if self._together is None else self._together
        self.found.steps.append(replace(step, needs=needs))

    def _call(self, kind: str, output: object) -> None:
        """A durable call that is no step: it has no body."""
        self._add(ExpectedStep(STEP_NAMES[kind], StepStatus.SUCCEEDED, json.dumps(output), 0, ()))

    def _other_call(self, kind: str, status: StepStatus | None) -> None:
        """One that fails, or is never over."""
        self._add(ExpectedStep(STEP_NAMES[kind], status, None, 0, ()))

    @property
    def _next_child(self) -> str:
        """Id of a child that is started now."""
        return f"{self._run_id}-{len(self.found.steps)}"

    def _start(self, program: Program, how: str = "start", child: str = "") -> Expected:
        """Start a run; what must come of it."""
        child = child or self._next_child
        self.found.children[child] = program
        self._call(how, child)
        return expected(program, child)

    def _result(self, child: Expected) -> int:
        """Wait for a child; what its parent makes of its end."""
        if child.status is RunStatus.SUCCEEDED:
            assert child.output is not None
            self._call("result", json.loads(child.output))
            return int(json.loads(child.output))
        # A child that only a cancel ends may be seen to have been cancelled before its parent ends, too.
        failed = ExpectedStep(STEP_NAMES["result"], StepStatus.FAILED, None, 0, ())
        if child.status is RunStatus.FAILED:
            self._add(failed)
        else:
            self._add(replace(failed, status=None, first=failed))
        return mixed(child.error, 0)

    # -- one expectation for each kind

    def step(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._step("sync" if node["sync"] else "step", output=result)
        return result

    def retried(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._step(node["kind"], output=result, failures=node["fails"], bodies=node["fails"] + 1)
        return result

    def caught(self, node: Node, value: int) -> int:
        self._step("caught", status=StepStatus.FAILED, failures=1)
        return self.sequence(node["fallback"], mixed(node["key"], value))

    def gather(self, node: Node, value: int) -> int:
        with self.together():
            results = [EXPECTATIONS[each["kind"]](self, each, value) for each in node["steps"]]
        return mixed(node["key"], sum(results))

    def nested(self, node: Node, value: int) -> int:
        return self.sequence(node["nodes"], value)

    def sleep(self, node: Node, value: int) -> int:
        self._call("sleep", None)
        return mixed(node["key"], value)

    def race(self, node: Node, value: int) -> int:
        if node["branches"][node["wins"]] == "recv":
            self._call("send", None)
        names = {"step": "step", "work": "step", "event": "get"}
        with self.together():
            for place, branch in enumerate(node["branches"]):
                name = STEP_NAMES[names.get(branch, branch)]
                if place != node["wins"]:
                    lost = ExpectedStep(name, StepStatus.DROPPED, None, 0, (1,), repeats=0, may_lack=True)
                    self._add(lost if branch == "work" else replace(lost, bodies=()))
                elif branch == "step":
                    self._step("step", output=mixed(node["key"], value))
                else:
                    self._call(branch, value if branch == "recv" else None)
            self._call("race", node["wins"])
        return mixed(node["key"], value + node["wins"])

    def chance(self, node: Node, value: int) -> int:
        self._add(ExpectedStep(STEP_NAMES["now"], StepStatus.SUCCEEDED, None, 0, (), any_output=True))
        result = mixed(node["key"], value)
        self._step("noted", output=result)
        return result

    def changed(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._call("patch", True)
        self._step("step", output=result)
        return result

    def told(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._step("told", output=result)
        self._call("recv", value)
        self._call("recv", None)
        return result

    def children(self, node: Node, value: int) -> int:
        found = [self._start(Program(nodes)) for nodes in node["programs"]]
        with self.together():
            results = [self._result(child) for child in found]
        return mixed(node["key"], sum(results) + value)

    def handled(self, node: Node, value: int) -> int:
        found = [self._start(Program(nodes)) for nodes in node["programs"]]
        with self.together() if node["together"] else nullcontext():
            results = [self._result(child) for child in found]
        return self.sequence(node["fallback"], mixed(node["key"], sum(results) + value))

    def late(self, node: Node, value: int) -> int:
        self._start(Program(node["nodes"], timeout=node["timeout"]))
        self._other_call("result", StepStatus.FAILED)
        return self.sequence(node["fallback"], mixed(node["key"], value))

    def watched(self, node: Node, value: int) -> int:
        first_id = self._next_child
        first = self._start(Program(node["nodes"], timeout=node["timeout"]))
        watch = {"kind": "watch", "of": first_id, "seen": first.output, **{name: node[name] for name in WATCHES}}
        return mixed(node["key"], self._result(self._start(Program([watch]))) + value)

    def watch(self, node: Node, _value: int) -> int:
        """The other child; `seen` is the output of the run that it waits for, None when that is cancelled."""
        if node["how"] == "select":
            self._call("select", node["of"])
        failed = ExpectedStep(STEP_NAMES["result"], StepStatus.FAILED, None, 0, ())
        if node["seen"] is None:
            self._add(failed)
            return mixed(node["key"], 1)
        # With the whole family cancelled it may see that of the other before its own.
        self._add(replace(failed, status=StepStatus.SUCCEEDED, output=node["seen"], first=failed))
        return mixed(node["key"], int(json.loads(node["seen"])))

    def sole(self, node: Node, value: int) -> int:
        child = self._start(Program(node["nodes"]), child=f"{self._run_id}.{node['key']}")
        self._other_call("start", StepStatus.FAILED)
        return mixed(node["key"], self._result(child) + value)

    def again(self, node: Node, value: int) -> int:
        for _ in range(2):
            self._result(self._start(Program(node["nodes"]), child=f"{self._run_id}.{node['key']}"))
            value = mixed(node["key"], value)
        return value

    def resumed(self, node: Node, value: int) -> int:
        child_id = self._next_child
        child = self._start(Program(node["nodes"]))
        self._result(child)
        self._call("resume", child_id)
        self._result(child)
        return mixed(node["key"], mixed(node["key"], value))

    def rewound(self, node: Node, value: int) -> int:
        child_id = self._next_child
        child = self._start(Program(node["nodes"]))
        first = self._result(child)
        self._call("rewind", child_id)
        return mixed(node["key"], first + self._result(child) + value)

    def deleted(self, node: Node, value: int) -> int:
        self.found.removed.add(self._next_child)
        self._start(Program(node["nodes"]))
        self._call("delete", None)
        return mixed(node["key"], value)

    def copied(self, node: Node, value: int) -> int:
        first = self._result(self._start(Program(node["nodes"])))
        return mixed(node["key"], first + self._result(self._start(Program(node["nodes"]), "fork")) + value)

    def stopped(self, node: Node, value: int) -> int:
        self._start(Program(node["nodes"]))
        # Its worker may have it, or nobody: who cancels it is told which.
        self._add(ExpectedStep(STEP_NAMES["cancel"], StepStatus.SUCCEEDED, None, 0, (), any_output=True))
        self._other_call("result", StepStatus.FAILED)
        return mixed(node["key"], value)

    def undone(self, node: Node, value: int) -> int:
        does = {**node, "kind": "does", "ends": node["kind"]}
        steps = self._start(Program([does])).steps
        done = steps[node["steps"] - 1].output if node["steps"] else "0"
        if node["kind"] == "taken":
            self._call("get", json.loads(done or ""))
            self._add(ExpectedStep(STEP_NAMES["cancel"], StepStatus.SUCCEEDED, None, 0, (), any_output=True))
        self._other_call("result", StepStatus.FAILED)
        return mixed(node["key"], value)

    def does(self, node: Node, value: int) -> int:
        """The child that undoes what it has done."""
        if not node["steps"]:
            self._call("set", None)
            self._step("stubborn", status=None)
            raise Ends(RunStatus.CANCELLED)
        done = []
        for number in range(node["steps"]):
            value = mixed(f"{node['key']}.{number}", value)
            self._step("step", output=value)
            done.append(mixed(f"{node['key']}.{number}", value))
        fails = node["ends"] == "undone"
        self._step("fail", status=StepStatus.FAILED, failures=1) if fails else self._call("set", None)
        self._call("undo", [*reversed(range(node["steps"]))])
        for result in reversed(done):
            self._step("back", output=result)
        self.found.undone = not fails
        raise Ends(RunStatus.FAILED, error="ValueError") if fails else Ends(RunStatus.CANCELLED)

    def quiet(self, node: Node, value: int) -> int:
        return mixed(node["key"], self._result(self._start(Program(node["nodes"]), "debounce")) + value)

    def family(self, node: Node, _value: int) -> int:
        found = [self._start(Program(nodes)) for nodes in node["programs"]]
        with self.together():
            for child in found:
                self._result(child)
        raise Ends(RunStatus.CANCELLED)

    def trap(self, node: Node, _value: int) -> int:
        how = str(node["how"])
        match how:
            case "work":
                self._step("step", status=None)
            case "retry":
                self._step("stubborn", status=None)
            case _:
                self._other_call("get" if how == "event" else how, None)
        raise Ends(RunStatus.CANCELLED)

    def talk(self, node: Node, value: int) -> int:
        listen = {"kind": "listen", "heard": value, "to": self._run_id, **{key: node[key] for key in LISTENS}}
        child = self._start(Program([listen]))
        for _ in range(node["messages"] + node["twice"]):
            self._call("send", None)
        assert child.output is not None
        answer = json.loads(child.output)
        event = mixed("event", heard(value, node["messages"]))
        self._call("get", event)
        self._call("recv", answer)
        self._call("result", answer)
        return mixed(node["key"], event + answer)

    def listen(self, node: Node, _value: int) -> int:
        """The child's side of a talk; `heard` is what it is told."""
        for number in range(node["messages"]):
            self._call("recv", node["heard"] + number)
        self._call("recv", None)
        value = heard(node["heard"], node["messages"])
        self._call("set", None)
        value = self.sequence(node["nodes"], value)
        self._call("send", None)
        return value

    def streamed(self, node: Node, value: int) -> int:
        child = self._start(Program([{"kind": "speak", "first": value, **{name: node[name] for name in SPEAKS}}]))
        total = 0
        for number in range(node["values"]):
            said = mixed("said", value + number)
            self._call("read", said)
            total = mixed("read", total + said)
        self._other_call("read", StepStatus.FAILED)
        return mixed(node["key"], total + self._result(child))

    def speak(self, node: Node, _value: int) -> int:
        """The child's side of a stream."""
        for _ in range(node["values"]):
            self._call("write", None)
        value = self.sequence(node["nodes"], node["first"])
        if node["closes"]:
            self._call("close", None)
        return value

    def transaction(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._step("transaction", output=result, failures=node["fails"], bodies=node["fails"] + 1)
        return result

    def keyed(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        with self.together():
            for _ in range(node["callers"]):
                self._step("keyed", output=result)
        return mixed(node["key"], node["callers"] * result)

    def blocking(self, node: Node, value: int) -> int:
        result = mixed(node["key"], value)
        self._step("blocking", output=result)
        return result

    def attempts(self, node: Node, value: int) -> int:
        """Fails until the body is tried for the `until`th time."""
        if self._program.max_run_attempts < node["until"]:
            self._step("attempts", status=StepStatus.FAILED, failures=1, repeats=self._program.max_run_attempts)
            raise Ends(RunStatus.FAILED, error="ValueError")
        result = mixed(node["key"], value)
        self.found.run_attempts = node["until"] - 1
        failed = ExpectedStep(STEP_NAMES["attempts"], StepStatus.FAILED, None, 1, (1,))
        self._step("attempts", output=result, repeats=node["until"], first=failed)
        return result

    def fail(self, _node: Node, _value: int) -> int:
        self._step("fail", status=StepStatus.FAILED, failures=1)
        raise Ends(RunStatus.FAILED, error="ValueError")

    def raises(self, _node: Node, _value: int) -> int:
        raise Ends(RunStatus.FAILED, error="KeyError")

    def bad(self, node: Node, _value: int) -> int:
        """The first net fails the step; what passes through it, Postgres refuses, and that fails the run."""
        refused = node["how"] == "refused"
        self._step("bad", status=None if refused else StepStatus.FAILED, failures=0 if refused else 1)
        code = PayloadTooLarge.code if node["how"] == "huge" else EncodingFailed.code
        raise Ends(RunStatus.FAILED, code)

    def poison(self, _node: Node, _value: int) -> int:
        self._step("poison", status=None, repeats=0)
        raise Ends(RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED)


NAMED = {"parked": "retried", "sequence": "nested", "taken": "undone", "raise": "raises"}
"""Which method is that of a kind, where it is not called so."""

THEIRS = ("listen", "watch", "speak", "does")
"""Kinds that only the children of others are."""

EXPECTATIONS: dict[str, Callable[[_Walk, Node, int], int]] = {
    kind: getattr(_Walk, NAMED.get(kind, kind)) for kind in (*MAKERS, *THEIRS)
}
