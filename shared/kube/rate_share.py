"""Divides kubeAPIQPS and kubeAPIBurst between the processes that spend them, so that together they spend what is
configured (config.md 6.1). Pure.

The shares are fixed: no process depends on another one, and one that is killed takes nothing from the others. Within a
process urgency decides (`shared.kube.request_queue`).
"""

_SHARES = {"sources": 0.6, "status": 0.4}  # sources reads objects again and resumes up to 400 watches after an outage
_DEFAULT_QPS, _DEFAULT_BURST = 5.0, 10  # the client library's own, where 0 is configured


def rate_share(service: str, qps: float, burst: int) -> tuple[float, int]:
    """Return the requests a second and the requests at once of one service, out of the configured ones; 0 means 5 and
    10, a negative `qps` no limit. Each has at least one request at once."""
    if qps < 0:
        return qps, burst
    qps, burst = qps or _DEFAULT_QPS, burst or _DEFAULT_BURST
    of_sources = max(1, round(burst * _SHARES["sources"]))
    return qps * _SHARES[service], of_sources if service == "sources" else max(1, burst - of_sources)
