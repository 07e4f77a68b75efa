"""A worker whose clock is off: on the path of its process only. Everything that reads the time of day is wrong by
FAULTS_CLOCK_OFFSET seconds; clocks that measure durations are left alone, as on a machine with a wrong time."""

import datetime as dt
import os
import time

OFFSET = float(os.environ.get("FAULTS_CLOCK_OFFSET", "0"))

_time, _time_ns, _gettime = time.time, time.time_ns, time.clock_gettime
_localtime, _gmtime = time.localtime, time.gmtime
_datetime = dt.datetime


class _Kind(type):
    def __instancecheck__(cls, value):  # type: ignore[no-untyped-def]
        return isinstance(value, _datetime)

    def __subclasscheck__(cls, other):  # type: ignore[no-untyped-def]
        return issubclass(other, _datetime)


class _Skewed(_datetime, metaclass=_Kind):
    __slots__ = ()

    @classmethod
    def now(cls, tz=None):  # type: ignore[no-untyped-def]
        return _datetime.now(tz) + dt.timedelta(seconds=OFFSET)

    @classmethod
    def utcnow(cls):  # type: ignore[no-untyped-def]
        return _datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=OFFSET)


def _skew() -> None:
    time.time = lambda: _time() + OFFSET
    time.time_ns = lambda: _time_ns() + int(OFFSET * 1e9)
    time.clock_gettime = lambda clock: _gettime(clock) + (OFFSET if clock == time.CLOCK_REALTIME else 0.0)
    time.localtime = lambda seconds=None: _localtime(time.time() if seconds is None else seconds)
    time.gmtime = lambda seconds=None: _gmtime(time.time() if seconds is None else seconds)
    dt.datetime = _Skewed  # type: ignore[misc]


if OFFSET:
    _skew()
