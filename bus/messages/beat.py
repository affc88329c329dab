"""The beat: what each service reports of itself every second and whenever a new subscriber joins."""

from msgspec import Struct, field


class Beat(Struct, frozen=True, kw_only=True):
    """Topic `beats`: number of the newest update of each owned stream, so that a lost last update is noticed."""

    service: str  # the sender
    incarnation: str  # changes with every start of the process
    protocol: str  # version of PROTOCOL.md that it implements
    pid: int  # its process
    sent_at: float  # CLOCK_MONOTONIC seconds
    # stream -> number of its newest update, for each stream it owns
    streams: dict[str, int] = field(default_factory=dict)
    # working loop -> CLOCK_MONOTONIC seconds of its last turn; of podsync and volume it does not advance while work is
    # overdue; `lease` of status: when the lease was renewed
    progress: dict[str, float] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()  # one line each, at most 4096 characters: the present failures of this process
