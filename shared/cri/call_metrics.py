"""Counts and times CRI calls as kubelet_runtime_operations_* (node.md 9.2)."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from shared.metrics.family import counter, exponential, histogram
from shared.metrics.registry import Registry

_BEFORE_A_WORD = re.compile(r"(?<!^)(?=[A-Z])")
CALLS = counter("kubelet_runtime_operations_total", "CRI calls by operation.", "operation_type")
ERRORS = counter("kubelet_runtime_operations_errors_total", "CRI calls that failed.", "operation_type")
DURATION = histogram(
    "kubelet_runtime_operations_duration_seconds",
    "Duration of a CRI call.",
    "operation_type",
    buckets=exponential(0.005, 2.5, 14),
)
SANDBOX_DURATION = histogram(
    "kubelet_run_podsandbox_duration_seconds", "Duration of RunPodSandbox, by runtime handler.", "runtime_handler"
)
SANDBOX_ERRORS = counter(
    "kubelet_run_podsandbox_errors_total", "RunPodSandbox calls that failed, by runtime handler.", "runtime_handler"
)


class CallMetrics:
    """The instruments of one process."""

    def __init__(self, metrics: Registry) -> None:
        self._calls, self._errors = metrics.counter(CALLS), metrics.counter(ERRORS)
        self._duration = metrics.histogram(DURATION)
        self._sandbox_duration = metrics.histogram(SANDBOX_DURATION)
        self._sandbox_errors = metrics.counter(SANDBOX_ERRORS)

    @contextmanager
    def call(self, method: str) -> Iterator[None]:
        """Count and time the block as one call of this CRI method; an exception is its failure."""
        operation, began = operation_type(method), time.monotonic()
        self._calls.inc(operation)
        try:
            yield
        except BaseException:
            self._errors.inc(operation)
            raise
        finally:
            self._duration.observe(time.monotonic() - began, operation)

    @contextmanager
    def sandbox(self, runtime_handler: str) -> Iterator[None]:
        """Count and time the block as one RunPodSandbox with this handler."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self._sandbox_errors.inc(runtime_handler)
            raise
        finally:
            self._sandbox_duration.observe(time.monotonic() - began, runtime_handler)


@cache
def operation_type(method: str) -> str:
    """Return the kubelet's label of a CRI method: RunPodSandbox is `run_podsandbox`."""
    name = method.replace("PodSandbox", "Podsandbox").replace("UpdateContainerResources", "UpdateContainer")
    return _BEFORE_A_WORD.sub("_", name).lower()
