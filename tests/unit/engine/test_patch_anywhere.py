"""A change that is put into a body behind a patch, anywhere, while a run of it is anywhere in the middle."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import perdure
from hypothesis import given
from hypothesis import strategies as st
from perdure.errors import ReleaseRequested
from perdure.model.outcome import Succeeded

from tests.support.engine import Change, Engine, until

CALLS = st.lists(st.sampled_from(["step", "dropped", "sleep", "now", "patch"]), min_size=1, max_size=6)


@given(calls=CALLS, place=st.integers(0, 6), lived=st.integers(0, 7), committed=st.booleans())
async def test_whatever_a_run_has_recorded_it_goes_on_behind_a_patch_and_stays_with_its_way(
    calls: list[str], place: int, lived: int, committed: bool
) -> None:
    with ThreadPoolExecutor(1) as threads:
        engine = Engine(threads)

        async def note(what: str) -> str:
            return what

        note = engine.step(note, name="note")
        seen: list[bool] = []
        stands = asyncio.Event()

        async def go(stop: int | None, changed: bool) -> None:
            for number, call in enumerate(calls):
                if number == stop:
                    stands.set()
                    await asyncio.Event().wait()
                if changed and number == place % len(calls):
                    seen.append(await perdure.patch("change"))
                    if seen[-1]:
                        await note("new")
                match call:
                    case "step":
                        await note(str(number))
                    case "dropped":
                        note("dropped").close()
                    case "sleep":
                        await perdure.sleep(0)
                    case "now":
                        await perdure.now()
                    case _:
                        await perdure.patch(f"other {number}")

        change = Change(engine)
        change.body = lambda: go(lived, False)
        claim = engine.claim(change.run)
        await until(lambda: claim.done or stands.is_set())
        claim.interrupt(ReleaseRequested("the worker stops"))
        await claim.ending()
        if committed:
            claim.log.commit()
        recorded = max(change.run.rows, default=-1)
        for _ in range(2):
            assert isinstance(await change.claim(lambda: go(None, True)), Succeeded)
        assert seen == [recorded < place % len(calls)] * 2
