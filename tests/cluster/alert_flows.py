"""The workflow that test_alerts.py brings into the stock worker image: it fails, and cannot undo what it did."""

from perdure import step, workflow


@step(name="alerts.refuse")
async def refuse() -> None:
    raise ValueError("this step always fails")


@step(name="alerts.take")
async def take() -> str:
    return "taken"


@step(name="alerts.give_back")
async def give_back(taken: str) -> None:
    raise ValueError(f"what was {taken} cannot be given back")


@workflow(name="alerts.failing")
async def failing() -> None:
    await take().undo(give_back)
    await refuse()
