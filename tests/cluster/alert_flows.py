"""The workflow that test_alerts.py brings into the stock worker image: it fails."""

from perdure import step, workflow


@step(name="alerts.refuse")
async def refuse() -> None:
    raise ValueError("this step always fails")


@workflow(name="alerts.failing")
async def failing() -> None:
    await refuse()
