"""Pings systemd's watchdog, as bootstrap does: either may be killed. Evaluates beats alone."""

import os

from bus.messages.beat import Beat
from bus.messages.bootstrap import SUPERVISORD_IS_SILENT
from services.frame.launch import Context
from services.status.core.agent_health import AgentHealth
from shared.agent.service_notify import keep_pinging, service_socket, watchdog_interval
from shared.errors import OperatorError


class Systemd:
    """`process` is the one that started us; systemd knows the unit by it."""

    def __init__(self, context: Context, process: int) -> None:
        self._clock, self._address = context.clock, service_socket()
        self._health = AgentHealth(SUPERVISORD_IS_SILENT, context.config.sync_frequency, self._clock.monotonic())
        try:
            self._interval = watchdog_interval(os.environ, process) if self._address else 0.0
        except OperatorError:  # bootstrap refuses to start by it
            self._interval = 0.0
        if self._interval:
            context.bus.on_beat(self._take_beat)

    @property
    def is_waited_for(self) -> bool:
        """Whether systemd expects pings."""
        return self._interval > 0

    async def run(self) -> None:
        """Ping, forever."""
        await keep_pinging(self._interval, self._is_well, self._address)

    def _take_beat(self, beat: Beat) -> None:
        self._health.note_beat(beat.service, beat.progress, beat.troubles, self._clock.monotonic())

    def _is_well(self) -> bool:
        return self._health.is_well(self._clock.monotonic())
