"""Undo of a run whose values are written by a serializer of the application: what is promised is written so, too."""

import pytest
from perdure.model.states import Undo

from tests.support.engine import Engine
from tests.support.shop import Hold, Shop


class Backwards:
    """JSON, written backwards."""

    name = "backwards"

    def encode(self, text: str) -> str:
        return text[::-1]

    def decode(self, text: str) -> str:
        return text[::-1]


class Outside(Backwards):
    """The same, as one that talks to somebody."""

    name = "outside"
    blocking = True


@pytest.mark.parametrize("codec", [Backwards(), Outside()])
async def test_results_and_arguments_are_written_and_read_as_the_run_is(engine: Engine, codec: Backwards) -> None:
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use("", [codec.name])
    shop = Shop(engine)
    run = shop.run
    run.input = f"!{codec.name}:{run.input[::-1]}"
    await shop.undone(run)
    assert shop.done == [("refund", 5, "no courier", "bank"), ("release", Hold(1, "shop"))]
    assert all(text.startswith(f"!{codec.name}:") for _, text in run.promises.values())
    assert run.undo is Undo.FAILED
