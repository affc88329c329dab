"""Keeps the last hour of the node and the agent for the node page: a limited number of samples. Decides what a sample
contains.

Moments are CLOCK_MONOTONIC seconds, `at` wall-clock seconds. Must not know where the values come from.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

INTERVAL_SECONDS = 10  # between two samples
MAX_SAMPLES = 360  # one hour
_MAX_AGE_SECONDS = INTERVAL_SECONDS * MAX_SAMPLES
_MAX_SERIES = 64  # of a saved history

Values = Mapping[str, float | None]  # series -> value; None = it could not be read


def until_next(now: float) -> float:
    """Return the seconds until the next multiple of the interval. A multiple less than 0.1 s ahead counts as passed,
    because the timer of a loop may end a millisecond early."""
    left = INTERVAL_SECONDS - now % INTERVAL_SECONDS
    return left if left > 0.1 else left + INTERVAL_SECONDS


class NodeHistory:
    """The samples of the last hour. A series that a sample does not name has no value there."""

    def __init__(self) -> None:
        self._at: deque[int] = deque(maxlen=MAX_SAMPLES)
        self._values: dict[str, deque[float | None]] = {}

    def add(self, at: float, values: Values) -> None:
        """Add the sample of `at` (seconds since the epoch); the oldest makes room for it. Where the clock was set
        back, the others are dropped; by less than two intervals, they stay, and this sample gets the second after
        the newest. No two samples have the same moment: a page selects samples by their moments."""
        if self._at and at < self._at[-1] - INTERVAL_SECONDS:
            self._at.clear()
            self._values.clear()
        for name in values.keys() - self._values.keys():
            self._values[name] = deque([None] * len(self._at), maxlen=MAX_SAMPLES)
        self._at.append(max(round(at), self._at[-1] + 1) if self._at else round(at))
        for name, series in self._values.items():
            series.append(_short(values.get(name)))
        while self._at[0] < at - _MAX_AGE_SECONDS:  # the machine was suspended, or the clock was set forward
            self._at.popleft()
            for series in self._values.values():
                series.popleft()

    def restore(self, saved: Any, wall: float) -> bool:
        """Take the samples of the last hour before `wall` from what `data` returned in an earlier process. False = it
        is something else, or more than an interval newer than now: the clock was set back."""
        moments, values = (saved.get("at"), saved.get("values")) if isinstance(saved, dict) else (None, None)
        if not (isinstance(moments, list) and isinstance(values, dict)) or not 0 < len(moments) <= MAX_SAMPLES:
            return False
        if not all(type(one) is int for one in moments) or moments != sorted(set(moments)):
            return False
        if moments[-1] > wall + INTERVAL_SECONDS + 1:
            return False
        series = [one for one in values.values() if isinstance(one, list) and len(one) == len(moments)]
        if len(series) != len(values) or len(series) > _MAX_SERIES:
            return False
        if not all(value is None or type(value) in (int, float) for one in series for value in one):
            return False
        old = sum(moment < wall - _MAX_AGE_SECONDS for moment in moments)
        self._at = deque(moments[old:], maxlen=MAX_SAMPLES)
        self._values = {name: deque(one[old:], maxlen=MAX_SAMPLES) for name, one in values.items()}
        return True

    def data(self) -> dict[str, Any]:
        """Return the samples as JSON data. `at`: the moments, oldest first; `values`: by series, one for each
        moment."""
        return {"at": list(self._at), "values": {name: list(series) for name, series in sorted(self._values.items())}}


def added(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the samples of `after` that `before` does not have, both as `data` returns them; {} = none. Where the
    clock was set back, return all samples; they then begin before the newest one of `before`."""
    newest = before["at"][-1] if before["at"] else float("-inf")
    if after["at"] and after["at"][-1] < newest:
        return dict(after)
    count = sum(at > newest for at in after["at"])
    if not count:
        return {}
    return {"at": after["at"][-count:], "values": {name: series[-count:] for name, series in after["values"].items()}}


class Latencies:
    """Measures between two samples the beats of the services and the starts of pods."""

    def __init__(self) -> None:
        self._beats: dict[str, float] = {}  # service -> when it sent its newest beat
        self._arrived: dict[str, float] = {}  # UID of a pod that has not started -> when it arrived
        self._interval = self._delay = self._start = None  # type: float | None

    def note_beat(self, service: str, sent_at: float, now: float) -> None:
        """Note a beat of the service that was received at `now`."""
        if (before := self._beats.get(service)) is not None:
            self._interval = max(self._interval or 0.0, sent_at - before)
        self._beats[service] = sent_at
        self._delay = max(self._delay or 0.0, now - sent_at)

    def pod_arrived(self, uid: str, now: float) -> None:
        """Note that a pod that has not run is desired since `now`."""
        self._arrived.setdefault(uid, now)

    def pod_started(self, uid: str, now: float) -> None:
        """Note that all containers of the pod have started. Counts once, and only for a pod that has arrived."""
        if (arrived := self._arrived.pop(uid, None)) is not None:
            self._start = max(self._start or 0.0, now - arrived)

    def pod_removed(self, uid: str) -> None:
        """Note that the pod is no longer desired."""
        self._arrived.pop(uid, None)

    def take(self, now: float) -> dict[str, float | None]:
        """Return the longest interval and delay of beats and the longest start of a pod since the last call, in
        seconds. The time since the newest beat of each service is an interval, too.
        """
        silent = max((now - sent_at for sent_at in self._beats.values()), default=0.0)
        interval = max(self._interval or 0.0, silent) if self._beats else None
        taken = {"beats.interval": interval, "messages.delay": self._delay, "pods.start": self._start}
        self._interval = self._delay = self._start = None
        return taken


def have_started(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether every regular container of the pod runs or has run."""
    statuses = status.get("containerStatuses") or []
    states = [one.get("state") or {} for one in statuses]
    return len(states) == len(spec.get("containers") or []) > 0 and not any(state.get("waiting") for state in states)


def _short(value: float | None) -> float | int | None:
    """Return the value with four digits, because a chart shows no more."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short
