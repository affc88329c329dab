"""Records an event of the node for each process that the kernel killed because the machine had no memory left
(node.md 4.17). A restarted pleg continues after the record it has reported."""

import logging
from collections.abc import Callable
from pathlib import Path

from bus.messages.event import KubeEvent
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.pleg.adapters.kernel_log import KMSG, KernelLog
from services.pleg.core.oom_records import OomRecords

log = logging.getLogger(__name__)

UNREADABLE = "the kernel's log"  # name of the trouble


class OomWatcher:
    """Watches the log from `start` on, unless `open_log` is None. A log that cannot be read is a trouble."""

    def __init__(self, context: Context, events: EventRecorder, open_log: Callable[[], int] | None) -> None:
        self._bus, self._events, self._open = context.bus, events, open_log
        self._node_name = context.config.node_name
        self._mark = Path(context.config.run_dir) / "oom-record"
        self._records = OomRecords()
        self._log: KernelLog | None = None

    def start(self) -> None:
        """Begin to read the log."""
        if self._open is None:
            return
        try:
            self._log = KernelLog(self._mark, self._take, self._open())
        except OSError as error:
            line = f"{KMSG} cannot be read: {error.strerror}; processes killed for memory are not reported"
            log.warning("%s", line)
            self._bus.trouble(UNREADABLE, line)
            return
        self._log.start()

    def close(self) -> None:
        """Stop reading the log."""
        if self._log is not None:
            self._log.close()

    def _take(self, number: int, text: str) -> None:
        kill = self._records.take(text)
        if kill is None or self._log is None:
            return
        if kill.of_the_node:
            log.warning("%s", kill.message)
            event = KubeEvent(
                type="Warning", reason="SystemOOM", message=kill.message, kind="Node", name=self._node_name
            )
            self._events.record(event)
        self._log.keep(number)
