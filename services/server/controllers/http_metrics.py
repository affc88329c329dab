"""Counts and times the requests of one listener (server.md 1.3)."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from services.server.core.metrics.request_metrics import request_labels
from shared.metrics.family import counter, gauge, histogram
from shared.metrics.registry import Registry

_LABELS = ("method", "path", "server_type", "long_running")
REQUESTS = counter("kubelet_http_requests_total", "HTTP requests since the process started.", *_LABELS)
DURATION = histogram("kubelet_http_requests_duration_seconds", "Time to answer an HTTP request.", *_LABELS)
IN_FLIGHT = gauge("kubelet_http_inflight_requests", "HTTP requests that are being answered.", *_LABELS)


class HttpMetrics:
    """Counts and times requests."""

    def __init__(self, metrics: Registry) -> None:
        self._requests, self._duration = metrics.counter(REQUESTS), metrics.histogram(DURATION)
        self._in_flight = metrics.gauge(IN_FLIGHT)
        self._answering: Counter[tuple[str, str, str, str]] = Counter()

    @contextmanager
    def request(self, method: str, path: str, server_type: str) -> Iterator[None]:
        """Measure the block, which answers this request; `server_type` is `readwrite` or `readonly`."""
        labels, began = request_labels(method, path, server_type), time.monotonic()
        self._requests.inc(*labels)
        self._answering[labels] += 1
        self._in_flight.set(self._answering[labels], *labels)
        try:
            yield
        finally:
            self._answering[labels] -= 1
            self._in_flight.set(self._answering[labels], *labels)
            self._duration.observe(time.monotonic() - began, *labels)
