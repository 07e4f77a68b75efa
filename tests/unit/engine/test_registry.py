"""Registration: names, what can be a step or a workflow, and what a worker announces."""

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from perdure import step, transaction, workflow
from perdure.engine.registry import Registry
from perdure.errors import AlreadyLaunched, AlreadyRegistered, RegistrationError


async def plain(): ...


def test_names_default_to_the_qualified_name_and_for_workflows_also_the_module():
    registry = Registry()

    @step(registry=registry)
    async def charge(): ...

    @workflow(registry=registry)
    async def order(): ...

    where = "test_names_default_to_the_qualified_name_and_for_workflows_also_the_module.<locals>"
    assert registry.manifest() == (f"step:{where}.charge", f"workflow:{__name__}.{where}.order")


def test_the_manifest_is_sorted_and_says_what_each_name_is():
    registry = Registry()
    for name in ("b", "a"):
        step(name=name, registry=registry)(plain)
        workflow(name=name, registry=registry)(plain)
    assert registry.manifest() == ("step:a", "step:b", "workflow:a", "workflow:b")


def test_two_functions_under_one_name_are_refused_with_both_places():
    registry = Registry()

    @step(name="charge", registry=registry)
    async def one(): ...

    with pytest.raises(AlreadyRegistered, match=r"step charge: .*one and .*two"):

        @step(name="charge", registry=registry)
        async def two(): ...


def test_functions_made_in_a_loop_are_two_functions():
    registry = Registry()

    def make():
        @step(name="charge", registry=registry)
        async def charge(): ...

    make()
    with pytest.raises(AlreadyRegistered):
        make()


def test_the_same_function_may_be_registered_again():
    registry = Registry()
    step(name="charge", registry=registry)(plain)
    step(name="charge", registry=registry)(plain)
    assert registry.manifest() == ("step:charge",)


def test_a_file_imported_under_two_names_is_no_duplicate(tmp_path: Path):
    path = tmp_path / "flows.py"
    path.write_text("import perdure\n@perdure.step(name='double-import')\nasync def charge(): ...\n")
    for name in ("flows_one", "flows_two"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[name]


def generator():
    yield


async def async_generator():
    yield


def sync(): ...


class Callable:
    def __call__(self): ...


@pytest.mark.parametrize(
    "function",
    [generator, async_generator, Callable, Callable(), print, 7],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_cannot_be_a_step(function):
    with pytest.raises(RegistrationError):
        step(name="x", registry=Registry())(function)


@pytest.mark.parametrize(
    "function",
    [sync, generator, async_generator, Callable],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_cannot_be_a_workflow(function):
    with pytest.raises(RegistrationError):
        workflow(name="x", registry=Registry())(function)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\nb", "é", "x" * 254])
def test_what_cannot_be_a_name(name):
    with pytest.raises(RegistrationError):
        step(name=name, registry=Registry())(plain)


async def test_a_partial_needs_a_name_and_keeps_its_arguments():
    async def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(RegistrationError):
        step(registry=Registry())(functools.partial(add, 1))
    assert await step(name="add", registry=Registry())(functools.partial(add, 1))(2) == 3


def test_a_step_keeps_the_name_and_the_words_of_its_function():
    @step(registry=Registry())
    async def charge():
        """Take the money."""

    assert charge.__name__ == "charge"
    assert charge.__doc__ == "Take the money."
    assert charge.function is charge.__wrapped__


def test_an_annotation_that_cannot_be_found_says_where():
    registry = Registry()

    @workflow(name="order", registry=registry)
    async def order(order: "Missing"): ...  # noqa: F821

    with pytest.raises(RegistrationError, match=r"order cannot be read: .*Missing"):
        registry.manifest()


def test_a_parameter_of_a_step_may_be_annotated_for_the_type_checker_only():
    registry = Registry()

    @step(name="charge", registry=registry)
    async def charge(client: "Missing") -> int:  # noqa: F821
        return 1

    assert registry.manifest() == ("step:charge",)


def test_the_connection_of_a_transaction_is_no_argument_of_it():
    registry = Registry()

    @transaction(name="move", registry=registry)
    async def move(connection: "NotImportable", cents: int, to: str = "x") -> int:  # noqa: F821
        return cents

    definition = registry.steps["move"]
    assert definition.encode_call((1, "y"), {}) == '[1,"y"]'
    assert definition.encode_call((), {"cents": 1}) == "[1]"
    assert definition.arguments_by_name({"cents": 1, "to": "z"}) == ([1, "z"], {})
    assert registry.manifest() == ("step:move",)
    with pytest.raises(TypeError):
        definition.encode_call((), {})


@pytest.mark.parametrize("given", [{"isolation": "snapshot"}, {"timeout": 0}, {"name": "a b"}])
def test_options_of_a_transaction_that_make_no_sense_are_refused(given):
    async def body(connection): ...

    with pytest.raises(RegistrationError):
        transaction(**given, registry=Registry())(body)


def test_what_cannot_be_a_transaction_is_refused():
    def no_coroutine(connection): ...

    async def no_parameter(): ...

    async def by_name_only(*, connection): ...

    for body in (no_coroutine, no_parameter, by_name_only):
        with pytest.raises(RegistrationError):
            transaction(registry=Registry())(body)


def test_two_transactions_under_one_name_are_refused():
    registry = Registry()

    async def one(connection): ...

    async def other(connection): ...

    transaction(name="x", registry=registry)(one)
    with pytest.raises(AlreadyRegistered):
        transaction(name="x", registry=registry)(other)


def test_a_step_cannot_have_the_name_of_a_durable_call():
    async def nap():
        pass

    with pytest.raises(RegistrationError, match="durable calls"):
        step(name="perdure.sleep", registry=Registry())(nap)


def test_a_frozen_registry_takes_no_further_workflow_but_the_same_again_and_steps():
    registry = Registry()

    async def early(): ...

    async def late(): ...

    workflow(name="early", registry=registry)(early)
    registry.freeze("the worker has begun")
    workflow(name="early", registry=registry)(early)
    step(name="late", registry=registry)(late)
    with pytest.raises(AlreadyLaunched, match="workflow late cannot be registered any more: the worker has begun"):
        workflow(name="late", registry=registry)(late)
    registry.thaw()
    workflow(name="late", registry=registry)(late)


ENTRY = """
import perdure

@perdure.workflow{options}
async def flow(): ...

print(flow.name)
"""


@pytest.mark.parametrize(
    ("file", "command", "options", "says"),
    [
        ("app.py", ["app.py"], "", "app.flow"),
        ("shop/app.py", ["-m", "shop.app"], "", "shop.app.flow"),
        ("app.py", ["app.py"], "(name='mine')", "mine"),
        ("shop/app.py", ["shop/app.py"], "(name='mine')", "mine"),
        ("shop/app.py", ["shop/app.py"], "", "RegistrationError"),
        ("shop/__main__.py", ["-m", "shop"], "", "RegistrationError"),
        ("my-app.py", ["my-app.py"], "", "RegistrationError"),
        ("unused.py", ["-c", ENTRY.format(options="")], "", "RegistrationError"),
    ],
    ids=["script", "module", "named", "named in package", "file of package", "package", "no module name", "command"],
)
def test_no_workflow_is_named_after_main(tmp_path: Path, file: str, command: list[str], options: str, says: str):
    """A worker imports the module by its own name, and would know nothing of `__main__.flow`."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / file).write_text(ENTRY.format(options=options))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if says == "RegistrationError":
        assert "give it one with name=" in done.stderr
    else:
        assert done.stdout.strip() == says, done.stderr
