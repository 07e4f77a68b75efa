"""What exceptions carry, through the codecs of their run: it may be as secret as the run's values.

Used by `Values` for what a run records, and by clients for what they read. Types, messages and codes of errors stay
readable, for logs and statuses. Only codecs and serializers that work at once are used: what an error carries is small,
so there is nothing to put elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.engine.encoding import MARK, Encoding
from perdure.engine.errordata import LOST
from perdure.engine.serialization import Serializers
from perdure.errors import PerdureError
from perdure.model.outcome import ErrorRecord

SEALED = f'"raised": "{MARK}'
"""What stands in the text of a record of which something is sealed. In a message the quotes would be escaped."""


def sealed(record: ErrorRecord, encoding: Encoding) -> ErrorRecord:
    """The record as it is stored. What cannot be written is left out; what is sealed already stays as it is."""
    if not encoding.layered:
        return record
    raised = record.raised
    if raised and raised != LOST and raised[:1] != MARK:
        try:
            raised = encoding.at_once(raised, f"what error {record.type} carries")
        except PerdureError:
            raised = LOST
    return replace(record, raised=raised, attempts=tuple(sealed(each, encoding) for each in record.attempts))


def opened(record: ErrorRecord, serializers: Serializers) -> ErrorRecord:
    """The record with all that it carries. Raises `UnknownSerialization`, `DecodingFailed`; of the attempts behind it,
    what cannot be read is left out."""
    raised = record.raised
    if raised[:1] == MARK:
        raised = serializers.read(raised, f"what error {record.type} carries")
    attempts = tuple(legible(each, serializers) for each in record.attempts)
    return replace(record, raised=raised, attempts=attempts)


def legible(record: ErrorRecord, serializers: Serializers) -> ErrorRecord:
    """The same, without what cannot be read."""
    try:
        return opened(record, serializers)
    except PerdureError:
        return replace(record, raised=LOST, attempts=())
