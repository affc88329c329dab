"""The beat: what each service reports of itself every second and whenever a new subscriber joins."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Beat:
    """Topic `beats`: number of the newest update of each owned stream, so that a lost last update is noticed."""

    service: str
    incarnation: str
    protocol: str
    pid: int
    sent_at: float  # CLOCK_MONOTONIC seconds
    streams: dict[str, int] = field(default_factory=dict)  # stream -> newest number
    progress: dict[str, float] = field(default_factory=dict)  # name of a loop -> CLOCK_MONOTONIC of its last turn
    troubles: tuple[str, ...] = ()  # one line each: what is wrong with this process now ("runtime not reachable")
