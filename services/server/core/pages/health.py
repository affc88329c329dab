"""Decides the health checks of the agent from beats and plain times, and the text of /healthz.

Checks, their order and texts follow server.md 6.1; `bulkhead-<service>` is one more for each other process. Times are
CLOCK_MONOTONIC seconds. Must not know how beats arrive or who reads the text.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from services.server.core.go_text import quote

ABSENT_AFTER_SECONDS = 30.0  # without a beat
LOG_BLOCKED_AFTER_SECONDS = 120.0  # since the log was last flushed
MIN_SYNC_LOOP_SECONDS = 300.0  # that a turn of the sync loop may take, or twice the sync frequency if that is more


class Check(Struct, frozen=True):
    """One check's outcome; `error` is "" when it passed."""

    name: str
    error: str = ""


class HealthAnswer(Struct, frozen=True):
    """The HTTP answer to a health request."""

    status: int
    body: str


class Health:
    """Has the newest beats of the other services, and the checks that follow from them. `device_socket`: the path at
    which volume registers device plugins."""

    def __init__(self, services: Sequence[str], sync_frequency: float, device_socket: str, now: float) -> None:
        self._started = now
        self._last_beat: dict[str, float | None] = dict.fromkeys(services)
        self._sync_loop_turned: float | None = None
        self._sync_loop_limit = max(2 * sync_frequency, MIN_SYNC_LOOP_SECONDS)
        self._log_flushed = now
        self._device_socket, self._device_trouble = device_socket, ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all checks, in order."""
        return ("ping", "log", "syncloop", "device-plugin", *(f"bulkhead-{service}" for service in self._last_beat))

    def note_beat(self, service: str, progress: Mapping[str, float], now: float, troubles: Sequence[str] = ()) -> None:
        """Note a beat of `service` that was received at `now`. podsync's progress entry `sync` is the last turn of the
        sync loop; a trouble of volume that begins with the path of the socket says why device plugins cannot
        register."""
        if service in self._last_beat:
            self._last_beat[service] = now
        if service == "podsync" and "sync" in progress:
            self._sync_loop_turned = progress["sync"]
        if service == "volume":
            self._device_trouble = next((line for line in troubles if line.startswith(f"{self._device_socket}: ")), "")

    def note_log_flushed(self, now: float) -> None:
        """Note that the log's handlers were flushed without blocking."""
        self._log_flushed = now

    def checks(self, now: float) -> tuple[Check, ...]:
        """Return the result of every check at `now`."""
        log = "logging blocked" if now - self._log_flushed > LOG_BLOCKED_AFTER_SECONDS else ""
        services = (Check(f"bulkhead-{service}", self._absence(service, now)) for service in self._last_beat)
        own = (Check("ping"), Check("log", log), Check("syncloop", self._sync_loop(now)))
        return (*own, Check("device-plugin", self._device_trouble), *services)

    def _sync_loop(self, now: float) -> str:
        turned = self._sync_loop_turned
        if turned is not None and now - turned > self._sync_loop_limit:
            return "sync Loop took longer than expected"
        return ""

    def _absence(self, service: str, now: float) -> str:
        last = self._last_beat[service]
        silent = now - (self._started if last is None else last)
        if silent <= ABSENT_AFTER_SECONDS:
            return ""
        since = "since this server started" if last is None else "for too long"
        return f"{service} has sent no beat {since} ({silent:.0f} s); see bulkhead status"


def answer_all(checks: Sequence[Check], query: Mapping[str, Sequence[str]]) -> HealthAnswer:
    """Return the answer of `/healthz` with its `verbose` and `exclude` parameters."""
    unmatched = set(query.get("exclude", ()))
    lines: list[str] = []
    failed = False
    for check in checks:
        if check.name in unmatched:
            unmatched.discard(check.name)
            lines.append(f"[+]{check.name} excluded: ok\n")
        elif check.error:
            failed = True
            lines.append(f"[-]{check.name} failed: reason withheld\n")
        else:
            lines.append(f"[+]{check.name} ok\n")
    if unmatched:
        names = ", ".join(quote(name) for name in sorted(unmatched))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
    if failed:
        return HealthAnswer(500, "".join(lines) + "healthz check failed\n")
    return HealthAnswer(200, "".join(lines) + "healthz check passed\n" if "verbose" in query else "ok")


def answer_one(check: Check) -> HealthAnswer:
    """Return the answer of `/healthz/<name>`."""
    return HealthAnswer(500, f"internal server error: {check.error}\n") if check.error else HealthAnswer(200, "ok")
