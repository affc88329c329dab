"""From the effective KubeletConfiguration document to the fields of `EffectiveConfig`: seconds, bytes, absolute paths.

Which key a field has its value from is written at the field. Knows no default: what the document does not have is not
set. Pure.
"""

import posixpath
from dataclasses import fields
from typing import Any

from shared.config.durations import parse_duration
from shared.config.effective import KEY, EffectiveConfig
from shared.config.field_table import FIELDS
from shared.config.findings import Findings
from shared.config.nested import value_of
from shared.config.node_settings import check_sysctls, check_taints, default_sysctls, reservations
from shared.config.rules_serving import usable_cluster_dns
from shared.model.quantity import NANO, QuantityError, parse_quantity
from shared.model.schema import Scalar

_UNGATED_RESTART_SECONDS = 300.0  # the greatest back-off where its feature gate is off
_PATHS = ("staticPodPath", "tlsCertFile", "tlsPrivateKeyFile", "authentication.x509.clientCAFile")  # made absolute
_KEYS = {field.name: field.metadata[KEY] for field in fields(EffectiveConfig) if KEY in field.metadata}
_SCHEMAS = {field.key: field.schema for field in FIELDS}


def settings_of(document: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """EffectiveConfig's fields, by name, from KubeletConfiguration; the document has its defaults filled in."""
    converted = _converted(document, findings)
    plain = {name: _plain(key, value_of(document, key)) for name, key in _KEYS.items() if name not in converted}
    return {**plain, **converted}


def _plain(key: str, value: Any) -> Any:
    """Return durations as seconds, paths absolute, all else unchanged: "" or 0 where it is unset."""
    if _SCHEMAS[key] in (Scalar.DURATION, Scalar.DURATION_OR_NANOSECONDS):
        return seconds(value)
    return absolute(value) if key in _PATHS else value


def _converted(document: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """Return what is not simply the value of its key."""
    system_reserved, kube_reserved = reservations(document, findings)
    output = value_of(document, f"logging.options.{value_of(document, 'logging.format')}") or {}
    restart = value_of(document, "crashLoopBackOff.maxContainerRestartPeriod")
    return {
        "vmodule": tuple(
            (str(item.get("filePattern", "")), int(item.get("verbosity", 0)))
            for item in value_of(document, "logging.vmodule") or ()
        ),
        "memory_throttling_factor": document.get("memoryThrottlingFactor") or 0.0,
        "log_split_stream": bool(output.get("splitStream")),
        "container_log_max_size": _bytes(value_of(document, "containerLogMaxSize")),
        "log_info_buffer_size": _bytes(output.get("infoBufferSize")),
        "max_container_restart_period": _UNGATED_RESTART_SECONDS if restart is None else seconds(restart),
        "tracing": document.get("tracing") is not None,
        "tracing_endpoint": value_of(document, "tracing.endpoint") or "",
        "tracing_rate": value_of(document, "tracing.samplingRatePerMillion") or 0,
        "max_parallel_image_pulls": value_of(document, "maxParallelImagePulls") or 0,
        "image_verification_policy": value_of(document, "imagePullCredentialsVerificationPolicy") or "",
        "preloaded_images": tuple(document.get("preloadedImagesVerificationAllowlist") or ()),
        "static_pod_url_header": {
            name: tuple(values or ()) for name, values in (document.get("staticPodURLHeader") or {}).items()
        },
        "seccomp_default": bool(value_of(document, "seccompDefault")),
        "cluster_dns": usable_cluster_dns(document),
        "eviction_hard": dict(document.get("evictionHard") or {}),
        "eviction_soft": dict(document.get("evictionSoft") or {}),
        "eviction_soft_grace_period": {
            signal: parse_duration(period) for signal, period in (document.get("evictionSoftGracePeriod") or {}).items()
        },
        "eviction_minimum_reclaim": dict(document.get("evictionMinimumReclaim") or {}),
        "shutdown_grace_period_by_pod_priority": tuple(document.get("shutdownGracePeriodByPodPriority") or ()),
        "cpu_manager_policy_options": dict(document.get("cpuManagerPolicyOptions") or {}),
        "topology_manager_policy_options": dict(document.get("topologyManagerPolicyOptions") or {}),
        "reserved_memory": tuple(document.get("reservedMemory") or ()),
        "qos_reserved": dict(document.get("qosReserved") or {}),
        "node_lease_duration": float(document["nodeLeaseDurationSeconds"]),
        "register_with_taints": check_taints(document, findings),
        "system_reserved": system_reserved,
        "kube_reserved": kube_reserved,
        "enforce_node_allocatable": tuple(document.get("enforceNodeAllocatable") or ()),
        "allowed_unsafe_sysctls": check_sysctls(document, findings),
        "default_pod_sysctls": default_sysctls(document),
        "tls_cipher_suites": tuple(document.get("tlsCipherSuites") or ()),
        "tls_curve_preferences": tuple(document.get("tlsCurvePreferences") or ()),
    }


def seconds(value: str | int) -> float:
    """Return a duration of the document; a bare number is nanoseconds."""
    return value / 1e9 if isinstance(value, int) else parse_duration(value)


def absolute(path: str) -> str:
    """Return the path from the top, read from where we are; "" stays."""
    return posixpath.abspath(path) if path else ""


def _bytes(quantity: str | None) -> int:
    try:
        return parse_quantity(quantity or "0").nanos // NANO
    except QuantityError:  # a finding of the rules
        return 0
