"""Counts and times requests to the API server as rest_client_* (node.md 9.3)."""

from shared.metrics.family import counter, histogram
from shared.metrics.registry import Registry

REQUESTS = counter("rest_client_requests_total", "Requests to the API server by status code.", "code", "method", "host")
_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # seconds
DURATION = histogram(
    "rest_client_request_duration_seconds",
    "Time from sending a request to the head of its answer, watches aside.",
    "verb",
    "host",
    buckets=_BUCKETS,
)
RATE_LIMITER = histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Time that a request waited for the rate limit of this client (kubeAPIQPS), watches among them.",
    "verb",
    "host",
    buckets=_BUCKETS,
)
RETRIES = counter(
    "rest_client_request_retries_total", "Requests repeated after an answer that asks for it.", "code", "verb", "host"
)
NO_ANSWER = "<error>"  # the code where there is no answer


class RequestMetrics:
    """The instruments of one process, shared by its clients."""

    def __init__(self, metrics: Registry) -> None:
        self._requests, self._retries = metrics.counter(REQUESTS), metrics.counter(RETRIES)
        self._duration, self._rate_limiter = metrics.histogram(DURATION), metrics.histogram(RATE_LIMITER)

    def sent(self, method: str, host: str, code: str, seconds: float | None) -> None:
        """Count a request that was answered with this code, or not at all; `seconds` None = a watch."""
        self._requests.inc(code, method, host)
        if seconds is not None:
            self._duration.observe(seconds, method, host)

    def passed_rate_limit(self, method: str, host: str, seconds: float) -> None:
        """Observe how long the request, or its repetition, waited for the rate limit."""
        self._rate_limiter.observe(seconds, method, host)

    def retried(self, method: str, host: str, code: str) -> None:
        """Count that the request is sent again."""
        self._retries.inc(code, method, host)
