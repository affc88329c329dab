"""Measures the process itself, and answers GetMetrics."""

import math
import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bus.interface import Bus
from bus.messages.metrics import GetMetrics, MetricFamily, Metrics
from shared.metrics.family import Family, counter, gauge, histogram
from shared.metrics.registry import Registry, Series
from shared.process.identity import started_at

CPU = counter("bulkhead_process_cpu_seconds_total", "CPU time of the process, user and system.", "process")
RESIDENT = gauge("bulkhead_process_resident_memory_bytes", "Memory of the process, shared pages included.", "process")
PROPORTIONAL = gauge(
    "bulkhead_process_proportional_memory_bytes",
    "Memory of the process; a page that n processes share counts as 1/n.",
    "process",
)
VIRTUAL = gauge("bulkhead_process_virtual_memory_bytes", "Address space of the process.", "process")
STARTED = gauge("bulkhead_process_start_time_seconds", "Start of the process, in seconds since the epoch.", "process")
OPEN_FILES = gauge("bulkhead_process_open_fds", "Open file descriptors of the process.", "process")
MAX_FILES = gauge("bulkhead_process_max_fds", "File descriptors the process may open.", "process")
LAG = histogram(
    "bulkhead_loop_lag_seconds",
    "How late the event loop runs a timer; measured every five seconds.",
    "process",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
)

_PAGE = os.sysconf("SC_PAGE_SIZE")


def serve_metrics(bus: Bus, metrics: Registry) -> None:
    """Answer GetMetrics with the metrics of this process. Call it before the bus is started."""

    async def answer(request: GetMetrics) -> Metrics:
        return own_metrics(bus.incarnation, metrics, request.path)

    bus.answer(GetMetrics, answer)


def own_metrics(incarnation: str, metrics: Registry, path: str) -> Metrics:
    """Return the metrics of this process as a message."""
    return Metrics(incarnation=incarnation, families=_families(metrics.collect(path)))


def measure_process(metrics: Registry) -> None:
    """Measure this process before each collection. Values that /proc does not show are left out."""
    cpu, started = metrics.counter(CPU), metrics.gauge(STARTED)
    resident, proportional, virtual = metrics.gauge(RESIDENT), metrics.gauge(PROPORTIONAL), metrics.gauge(VIRTUAL)
    opened, max_files = metrics.gauge(OPEN_FILES), metrics.gauge(MAX_FILES)
    process = metrics.process

    def measure() -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu.set_total(usage.ru_utime + usage.ru_stime, process)
        max_files.set(resource.getrlimit(resource.RLIMIT_NOFILE)[0], process)
        with suppress(OSError, ValueError, IndexError):
            pages = Path("/proc/self/statm").read_bytes().split()
            virtual.set(int(pages[0]) * _PAGE, process)
            resident.set(int(pages[1]) * _PAGE, process)
        with suppress(OSError, ValueError, IndexError):
            proportional.set(_proportional(Path("/proc/self/smaps_rollup").read_text()), process)
        with suppress(OSError):
            opened.set(len(os.listdir("/proc/self/fd")) - 1, process)  # noqa: PTH208  one is that of the listing itself

    if start := started_at("self"):
        started.set(start, process)
    metrics.before_collecting(measure)


class LoopLag:
    """Observes by how much a repeated timer of the event loop is late."""

    def __init__(self, metrics: Registry) -> None:
        self._lag, self._process = metrics.histogram(LAG), metrics.process
        self._due: float | None = None

    def turned(self, now: float, interval: float) -> None:
        """Observe that the timer ran at `now` (loop time, seconds) and is set again for `interval` seconds later."""
        if self._due is not None:
            self._lag.observe(max(0.0, now - self._due), self._process)
        self._due = now + interval


def _families(collected: Iterable[tuple[Family, Series]]) -> tuple[MetricFamily, ...]:
    return tuple(
        MetricFamily(
            name=family.name,
            kind=family.kind,
            help=family.help,
            labels=family.labels,
            buckets=family.buckets,
            series=tuple((labels, tuple(map(_finite, values))) for labels, values in series.items()),
        )
        for family, series in collected
    )


def _finite(value: float) -> float | None:
    return None if value == math.inf else value


def _proportional(rollup: str) -> int:
    line = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "")
    return int(line.split()[1]) << 10
