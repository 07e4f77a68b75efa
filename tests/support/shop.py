"""An engine with steps that undo each other."""

from dataclasses import dataclass

from tests.support.engine import Engine, failed


@dataclass
class Hold:
    """What a step returns."""

    id: int
    of: str


class Shop:
    """An engine with steps that undo each other, and what they have done, in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done: list[object] = []
        done = self.done

        @engine.step(name="reserve")
        async def reserve(item: int) -> Hold:
            done.append(("reserve", item))
            return Hold(item, "shop")

        @engine.step(name="release")
        async def release(hold: Hold) -> None:
            done.append(("release", hold))

        @engine.step(name="refund", max_attempts=3, interval=0.0)
        async def refund(amount: int, why: str, *, to: str = "card") -> str:
            done.append(("refund", amount, why, to))
            return "refunded"

        @engine.step(name="charge")
        async def charge(amount: int) -> int:
            done.append(("charge", amount))
            return amount

        @engine.step(name="refuse")
        async def refuse() -> None:
            raise ValueError("no courier")

        self.reserve, self.release, self.charge, self.refund, self.refuse = reserve, release, charge, refund, refuse

        @engine.workflow
        async def order() -> str:
            await reserve(1).undo(release)
            await charge(5).undo(refund, "no courier", to="bank")
            await reserve(2)
            await refuse()
            return "sent"

        self.run = engine.run_of(order)

    async def undone(self, run=None):
        """The run has failed for good, and a claim undoes it."""
        run = run or self.run
        run.failed(failed(await self.engine.execute(run)).error)
        del self.done[:]
        return await self.engine.execute(run)
