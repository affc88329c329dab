"""Measures the rotation of one certificate under the kubelet's names (node.md 9.3)."""

import math

from services.bootstrap.core.certificate_template import CertificateFacts
from services.frame.launch import Context
from shared.metrics.family import counter, gauge, histogram

CLIENT, SERVING = "client certificate", "serving certificate"

CLIENT_TTL = gauge(
    "kubelet_certificate_manager_client_ttl_seconds",
    "Time until the client certificate expires, negative afterwards; +Inf where there is none.",
)
SERVING_TTL = gauge(
    "kubelet_certificate_manager_server_ttl_seconds",
    "Time until the serving certificate expires, negative afterwards; +Inf where there is none.",
)
CLIENT_ERRORS = counter(
    "kubelet_certificate_manager_client_expiration_renew_errors", "Requests for a client certificate that failed."
)
SERVING_ERRORS = counter("kubelet_server_expiration_renew_errors", "Requests for a serving certificate that failed.")
SERVING_AGE = histogram(
    "kubelet_certificate_manager_server_rotation_seconds",
    "Age of the serving certificate that the next one replaces.",
    buckets=(60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000),
)


class RotationMetrics:
    """The metrics of the certificate with this name, CLIENT or SERVING."""

    def __init__(self, context: Context, name: str) -> None:
        metrics, self._clock = context.metrics, context.clock
        self._ttl = metrics.gauge(CLIENT_TTL if name == CLIENT else SERVING_TTL)
        self._errors = metrics.counter(CLIENT_ERRORS if name == CLIENT else SERVING_ERRORS)
        self._age = metrics.histogram(SERVING_AGE) if name == SERVING else None
        self._facts: CertificateFacts | None = None
        metrics.before_collecting(self._measure)

    def holds(self, facts: CertificateFacts | None) -> None:
        """Note the certificate that the store contains now."""
        self._facts = facts

    def failed(self) -> None:
        """Count a request that failed or was refused."""
        self._errors.inc()

    def replaced(self, old: CertificateFacts | None) -> None:
        """Observe the age of a certificate that was replaced by a new one."""
        if self._age is not None and old is not None:
            self._age.observe(self._clock.wall() - old.not_before)

    def _measure(self) -> None:
        self._ttl.set(math.inf if self._facts is None else self._facts.not_after - self._clock.wall())
