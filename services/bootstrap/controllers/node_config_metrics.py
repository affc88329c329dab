"""Measures which configuration the node has, under the kubelet's names (config.md 4.6)."""

from bus.messages.bootstrap import NodeConfigStatus
from services.frame.launch import Context
from shared.metrics.family import gauge
from shared.model.config_source import ConfigSource

_LABELS = ("node_config_source", "node_config_uid", "node_config_resource_version", "node_config_kubelet_key")
ASSIGNED = gauge("kubelet_node_config_assigned", "The configuration that the Node names, always 1.", *_LABELS)
ACTIVE = gauge("kubelet_node_config_active", "The configuration in force, always 1.", *_LABELS)
LAST_KNOWN_GOOD = gauge(
    "kubelet_node_config_last_known_good", "The last configuration that was good, always 1.", *_LABELS
)
ERROR = gauge("kubelet_node_config_error", "1 if status.config of the Node has an error, else 0.")


class NodeConfigMetrics:
    """The metrics of the configuration; each family has one series at a time."""

    def __init__(self, context: Context) -> None:
        metrics = context.metrics
        self._gauges = [metrics.gauge(family) for family in (ASSIGNED, ACTIVE, LAST_KNOWN_GOOD)]
        self._error = metrics.gauge(ERROR)

    def show(self, status: NodeConfigStatus) -> None:
        """Show this status."""
        sources = (status.assigned, status.active, status.last_known_good)
        for gauge_of, source in zip(self._gauges, sources, strict=True):
            gauge_of.clear()
            gauge_of.set(1.0, *_labels(source))
        self._error.set(1.0 if status.error else 0.0)


def _labels(source: ConfigSource | None) -> tuple[str, str, str, str]:
    if source is None:
        return ("local", "", "", "")
    return (source.api_path, source.uid, source.resource_version, source.kubelet_config_key)
