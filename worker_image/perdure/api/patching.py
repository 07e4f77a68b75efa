"""Changes of a body whose runs are under way: which way a run takes. Exported again by `perdure`."""

from __future__ import annotations

from perdure.engine.calls.arguments import change_name
from perdure.engine.calls.patch import build_patch
from perdure.engine.pending import PendingCall


def patch(name: str) -> PendingCall[bool]:
    """Whether this run takes the new way at a change of its body.

    if await perdure.patch("two-warehouses"):
        await reserve_in_both(order)
    else:
        await reserve(order)

    True for a run that comes here for the first time: that is recorded as a call of its own, with what the run writes
    next, and a replay gets it again. False for a run that had gone past this place with the code of before: for it
    nothing is recorded and no index is taken, so that its calls keep theirs. In a loop each turn is a place of its own.

    Must be awaited on its own: it takes its place when it is awaited, and raises `PatchNondeterminism` if another call
    was built meanwhile. Raises `NotInWorkflow` outside a run, `InsideStep`, and `InvalidArgument` unless the name has
    1 to 255 printable characters.
    """
    return build_patch(change_name(name), marks=True)


def deprecate_patch(name: str) -> PendingCall[bool]:
    """Stands where a `patch` of this name was, once no run of the code before it can go on; always true.

    Runs that have recorded that they took the new way read it here; others record nothing. Keep only the new way after
    it. Once no run with that record can go on either, remove it. Must be awaited on its own, and raises, as `patch`.
    """
    return build_patch(change_name(name), marks=False)
