"""Computes metrics of the node and its pods at each collection, from the streams that server follows (node.md 9.1)."""

from collections import Counter
from collections.abc import Callable, Mapping

from services.server.controllers.pod_streams import PodStreams
from services.server.core.pods.pod_resources import is_active
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled, gates_of
from shared.config.gate_table import Gate, Stage
from shared.host.machine import architecture
from shared.metrics.family import gauge
from shared.metrics.registry import Registry
from shared.model.runtime import ContainerState, SandboxState
from shared.version import release_tag

NODE_NAME = gauge("kubelet_node_name", "Name of the node, always 1.", "node")
RUNNING_PODS = gauge("kubelet_running_pods", "Pods with a ready sandbox in the runtime.")
RUNNING_CONTAINERS = gauge("kubelet_running_containers", "Containers in the runtime by state.", "container_state")
DESIRED_PODS = gauge("kubelet_desired_pods", "Pods that the node is to run.", "static")
ACTIVE_PODS = gauge("kubelet_active_pods", "Pods that the node is to run and that have not ended.", "static")
MIRROR_PODS = gauge("kubelet_mirror_pods", "Mirror pods that the API server has of this node.")
BUILD_INFO = gauge(
    "kubernetes_build_info",
    "The Kubernetes release whose behaviour the agent has, always 1.",
    "major",
    "minor",
    "git_version",
    "git_commit",
    "git_tree_state",
    "build_date",
    "go_version",
    "compiler",
    "platform",
)
PROVIDER = gauge("kubelet_metrics_provider", "Where the usage of pods comes from, always 1.", "provider")
FEATURES = gauge("kubernetes_feature_enabled", "Feature gates: 1 where enabled, else 0.", "name", "stage", limit=2000)


class PodMetrics:
    """Measures `streams` and the gates in force before each collection of `metrics`."""

    def __init__(
        self,
        metrics: Registry,
        streams: PodStreams,
        config: EffectiveConfig,
        feature_gates: Callable[[], Mapping[str, bool]],
    ) -> None:
        self._streams = streams
        self._running_pods, self._mirrors = metrics.gauge(RUNNING_PODS), metrics.gauge(MIRROR_PODS)
        self._containers = metrics.gauge(RUNNING_CONTAINERS)
        self._desired, self._active = metrics.gauge(DESIRED_PODS), metrics.gauge(ACTIVE_PODS)
        metrics.gauge(NODE_NAME).set(1, config.node_name)
        provider = "cri" if enabled(config.feature_gates, "PodAndContainerStatsFromCRI") else "cadvisor"
        metrics.gauge(PROVIDER).set(1, provider)
        self._release = config.emulated_version
        major, _, minor = self._release.partition(".")
        platform = f"linux/{architecture()}"
        metrics.gauge(BUILD_INFO).set(1, major, minor, release_tag(self._release), "", "", "", "", "", platform)
        self._features, self._feature_gates = metrics.gauge(FEATURES), feature_gates
        self._measured_gates: Mapping[str, bool] | None = None
        metrics.before_collecting(self._measure)

    def _measure(self) -> None:
        if (gates := self._feature_gates()) is not self._measured_gates:
            self._measured_gates = gates
            for name, gate in gates_of(self._release).items():
                if gate.stage is Stage.REMOVED:
                    continue
                self._features.set(gates.get(name, gate.default), name, _stage(name, gate))
        runtime = self._streams.runtime.state.values()
        ready = (any(sandbox.state is SandboxState.READY for sandbox in pod.sandboxes) for pod in runtime)
        self._running_pods.set(sum(ready))
        states = Counter(container.state for pod in runtime for container in pod.containers)
        for state in ContainerState:
            self._containers.set(states[state], state.lower())
        desired = self._streams.desired.state.values()
        statics = {entry.uid: "" if entry.source == "api" else "true" for entry in desired}
        active = {entry.uid: statics[entry.uid] for entry in desired if is_active(self._streams.status_of(entry))}
        for gauge_, pods in ((self._desired, statics), (self._active, active)):
            for static in ("true", ""):
                gauge_.set(sum(value == static for value in pods.values()), static)
        self._mirrors.set(len(self._streams.mirrors.state))


def _stage(name: str, gate: Gate) -> str:
    if gate.stage is Stage.GA:
        return ""
    return gate.stage.name if gate.stage is not Stage.ALL else name.removeprefix("All").upper()
