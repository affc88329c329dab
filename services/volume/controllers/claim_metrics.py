"""Measures the work on resource claims and the calls of their drivers, and counts claims by driver, under the kubelet's
names (node.md 4.16)."""

from collections import Counter
from collections.abc import Callable, Iterable

from services.volume.core.resource_claims.claim import Claim
from shared.metrics.family import exponential, gauge, histogram
from shared.metrics.registry import Registry

PREPARE, UNPREPARE = "PrepareResources", "UnprepareResources"
ANY_DRIVER = "<any>"
_BUCKETS = exponential(0.1, 1.534127404634391, 15)  # to 40

OPERATIONS = histogram(
    "dra_operations_duration_seconds",
    "Duration of preparing the resource claims of a pod, and of unpreparing a claim.",
    "operation_name",
    "is_error",
    buckets=_BUCKETS,
)
CALLS = histogram(
    "dra_grpc_operations_duration_seconds",
    "Duration of a call of a driver of dynamic resource allocation.",
    "driver_name",
    "method_name",
    "grpc_status_code",
    buckets=_BUCKETS,
)
IN_USE = gauge("dra_resource_claims_in_use", "Resource claims of the node by driver, `<any>` = all.", "driver_name")


class ClaimMetrics:
    """The metrics of resource claims. `claims` returns those of the node."""

    def __init__(self, metrics: Registry, claims: Callable[[], Iterable[Claim]]) -> None:
        self._claims = claims
        self._operations, self._calls = metrics.histogram(OPERATIONS), metrics.histogram(CALLS)
        self._in_use = metrics.gauge(IN_USE)
        metrics.before_collecting(self._count)

    def operated(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Observe the end of an operation, PREPARE or UNPREPARE."""
        self._operations.observe(seconds, operation, "true" if failed else "false")

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """Observe the end of a call of a registered driver. `code`: Go's name, as `DeadlineExceeded`."""
        self._calls.observe(seconds, driver, method, code)

    def _count(self) -> None:
        claims = list(self._claims())
        counted = Counter(driver for claim in claims for driver in claim.parts)
        self._in_use.clear()
        for driver, count in {**counted, ANY_DRIVER: len(claims)}.items():
            self._in_use.set(count, driver)
