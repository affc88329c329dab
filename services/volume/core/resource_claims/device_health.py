"""Decides how healthy the devices of resource claims are, from what their drivers report; pure (node.md 4.16).

A report counts for as long as the driver says, whether or not it is still there. Times are seconds of one monotonic
clock.
"""

import math
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from services.volume.core.resource_claims.driver_checks import MAX_TEXT_CHARACTERS, DriverError
from shared.text.plain_text import plain

MAX_REPORTED_DEVICES = 10_000  # of one driver
DEFAULT_TIMEOUT_SECONDS = 30.0  # of a report, where the driver names none
MAX_TIMEOUT_SECONDS = 86400.0


class Health(StrEnum):
    """Has the values that the status of a container shows."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class ReportedDevice(Struct, frozen=True, kw_only=True):
    """Has the health of one device in a report. `timeout`: seconds, 0 = the driver names none."""

    pool: str
    device: str
    health: Health
    timeout: float = 0.0
    message: str = ""


class DeviceState(Struct, frozen=True):
    """Has what is published about one device. `message`: one line of the driver."""

    health: Health = Health.UNKNOWN
    message: str = ""


UNKNOWN = DeviceState()


class DeviceHealth:
    """Keeps the newest reports of the drivers, by name."""

    def __init__(self) -> None:
        self._states: dict[str, dict[tuple[str, str], tuple[DeviceState, float]]] = {}  # with the end of the report

    def reported(self, driver: str, devices: Iterable[ReportedDevice], count: int, now: float) -> None:
        """Note a report of `count` devices. One that it does not name keeps its last report. Raises DriverError."""
        if count > MAX_REPORTED_DEVICES:
            raise DriverError(f"it reports the health of {count} devices, more than {MAX_REPORTED_DEVICES}")
        states = {key: state for key, state in self._states.get(driver, {}).items() if state[1] > now}
        for device in devices:
            if max(len(device.pool), len(device.device)) > MAX_TEXT_CHARACTERS:
                raise DriverError(f"it names a device with more than {MAX_TEXT_CHARACTERS} characters")
            timeout = min(device.timeout, MAX_TIMEOUT_SECONDS) if device.timeout > 0 else DEFAULT_TIMEOUT_SECONDS
            state = DeviceState(device.health, plain(device.message[:MAX_TEXT_CHARACTERS]))
            states[device.pool, device.device] = (state, now + timeout)
        if len(states) > MAX_REPORTED_DEVICES:
            raise DriverError(f"it has reported the health of more than {MAX_REPORTED_DEVICES} devices")
        self._states[driver] = states

    def forget(self, driver: str) -> None:
        """Forget a driver that is not registered any more."""
        self._states.pop(driver, None)

    def state(self, driver: str, pool: str, device: str, now: float) -> DeviceState | None:
        """Return the state of a device; None = the driver has never reported health."""
        states = self._states.get(driver)
        if states is None:
            return None
        state, end = states.get((pool, device), (UNKNOWN, math.inf))
        return state if end > now else UNKNOWN

    def next_end(self, now: float) -> float:
        """Return when the next report ends; infinity = none does."""
        ends = (end for states in self._states.values() for _, end in states.values() if end > now)
        return min(ends, default=math.inf)
