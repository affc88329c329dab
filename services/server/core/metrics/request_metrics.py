"""Forms the label values of kubelet_http_*: a small set, whatever a client sends (server.md 1.3)."""

_METHODS = frozenset({"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"})
_PATHS = frozenset(
    {
        *("healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "run"),
        *("exec", "attach", "portForward", "containerLogs", "configz", "runningpods", "checkpoint", "logs", "debug"),
        *("pprof", "flagz", "statusz", "bulkhead"),
    }
)
_LONG_RUNNING = frozenset({"exec", "attach", "debug"})


def request_labels(method: str, path: str, server_type: str) -> tuple[str, str, str, str]:
    """Return the values of method, path, server_type and long_running."""
    first, _, rest = path.strip("/").partition("/")
    bucket = f"metrics/{rest.partition('/')[0]}" if first == "metrics" and rest else first
    bucket = bucket if bucket in _PATHS else "other"
    long_running = "true" if bucket in _LONG_RUNNING else "false"
    return method if method in _METHODS else "other", bucket, server_type, long_running
