"""Pings systemd's watchdog, as bootstrap does, because either of them may be killed. It evaluates only beats."""

import os

from bus.messages.beat import Beat
from bus.messages.bootstrap import SUPERVISORD_IS_SILENT
from services.frame.launch import Context
from services.status.core.agent_health import AgentHealth
from shared.agent.service_notify import keep_pinging, service_socket, watchdog_interval
from shared.errors import OperatorError


class Systemd:
    """Pings the watchdog while the agent is healthy. `process`: the PID of the process that systemd started."""

    def __init__(self, context: Context, process: int) -> None:
        self._clock, self._address = context.clock, service_socket()
        self._health = AgentHealth(SUPERVISORD_IS_SILENT, context.config.sync_frequency, self._clock.monotonic())
        try:
            self._interval = watchdog_interval(os.environ, process) if self._address else 0.0
        except OperatorError:  # bootstrap reports it and refuses to start
            self._interval = 0.0
        if self._interval:
            context.bus.on_beat(self._take_beat)

    @property
    def is_waited_for(self) -> bool:
        """Return whether systemd expects pings."""
        return self._interval > 0

    async def run(self) -> None:
        """Ping the watchdog until cancelled."""
        await keep_pinging(self._interval, self._is_well, self._address)

    def _take_beat(self, beat: Beat) -> None:
        self._health.note_beat(beat.service, beat.progress, beat.troubles, self._clock.monotonic())

    def _is_well(self) -> bool:
        return self._health.is_well(self._clock.monotonic())
