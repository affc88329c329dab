"""Builds clients of the container runtime, as the only module of the services."""

from services.frame.launch import Context
from shared.config.gate_releases import enabled
from shared.cri.client import CriRuntime


def container_runtime(context: Context, *, pids: bool) -> CriRuntime:
    """Return a client of the configured runtime and image service; it connects with its first call. `pids`: whether
    observations name processes, which costs the runtime a verbose answer for each."""
    config = context.config
    return CriRuntime(
        config.container_runtime_endpoint,
        config.image_service_endpoint,
        config.runtime_request_timeout,
        pids=pids,
        streams_lists=enabled(config.feature_gates, "CRIListStreaming"),
        monotonic=context.clock.monotonic,
        metrics=context.metrics,
        tracer=context.tracer,
    )


def runtime_at(endpoint: str, timeout: float) -> CriRuntime:
    """Return a client for a command, which has no context of a service; its observations name no processes."""
    return CriRuntime(endpoint, request_timeout=timeout, pids=False)
