"""Values that are of the right type and still wrong (config.md 2.2, 2.3), and combinations that cannot be.

Pure: the effective document and the gates in, findings out; what the kubelet only logs is a warning. Knows neither
defaults nor the machine. The plain limits are in FIELDS, the rest by area in `rules_*`.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from shared.config.field_table import FIELDS
from shared.config.fields import Field
from shared.config.findings import Findings
from shared.config.nested import value_of
from shared.config.node_settings import check_default_sysctls, check_sysctls, check_taints, reservations
from shared.config.rules_cgroups import check_cgroups
from shared.config.rules_data import SECOND, nanoseconds
from shared.config.rules_eviction import check_eviction, check_shutdown
from shared.config.rules_images import check_images
from shared.config.rules_logging import check_logging, check_tracing
from shared.config.rules_placement import check_placement
from shared.config.rules_pods import check_pod_logs_dir, check_pods
from shared.config.rules_serving import check_cluster_dns, check_open_access, check_serving
from shared.model.schema import Scalar
from shared.version import KUBERNETES_VERSION

__all__ = ["check_clients", "check_listeners", "check_open_access", "check_pod_logs_dir", "check_rules", "value_of"]

_OWN_RULE = ("crashLoopBackOff.maxContainerRestartPeriod", "configMapAndSecretChangeDetectionStrategy")


def check_rules(
    data: dict[str, Any], gates: Mapping[str, bool], findings: Findings, release: str = KUBERNETES_VERSION
) -> None:
    """Note every rule the effective document breaks; types have been checked before. An absent key is not set.
    `release`: the one of Kubernetes whose rules they are."""
    for field in FIELDS:
        if field.key not in _OWN_RULE:
            _check_plain(field, data, findings)
    check_serving(data, gates, findings, release)
    check_images(data, gates, findings)
    check_pods(data, gates, findings)
    check_cgroups(data, gates, findings)
    check_placement(data, gates, findings)
    check_eviction(data, findings)
    check_shutdown(data, gates, findings)
    check_logging(data, gates, findings)
    check_tracing(data, findings)
    check_taints(data, findings)
    check_sysctls(data, findings)
    check_default_sysctls(data, gates, findings)
    reservations(data, findings)
    check_cluster_dns(data, findings)


def check_clients(data: dict[str, Any], findings: Findings) -> None:
    """Check what only matters to a kubelet with an API server; without one, none of it is checked."""
    strategy = next(field for field in FIELDS if field.key == "configMapAndSecretChangeDetectionStrategy")
    _check_plain(strategy, data, findings)
    if data.get("kubeAPIBurst") == 0 and (data.get("kubeAPIQPS") or 0) > 0:
        findings.add("kubeAPIBurst", "is 0 while kubeAPIQPS is not: no request could be sent", "leave it out for 100")


def _check_plain(field: Field, data: dict[str, Any], findings: Findings) -> None:
    """Range and choices of one value."""
    value = value_of(data, field.key)
    if value is None:
        return
    if field.choices and value not in field.choices and not (value == "" and field.default == ""):
        choices = ", ".join(field.choices)
        findings.add(field.key, f'is "{value}", must be one of {choices}', "names are case-sensitive")
    lasts = field.schema in (Scalar.DURATION, Scalar.DURATION_OR_NANOSECONDS)
    amount, one = (nanoseconds(data, field.key), SECOND) if lasts else (value, 1)
    if (field.low is None and field.high is None) or amount is None:
        return
    low = None if field.low is None else field.low * one
    high = None if field.high is None else field.high * one
    if (low is not None and not amount >= low) or (high is not None and not amount <= high):
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        findings.add(field.key, f"is {shown}, must be {_limits(field, lasts)}", "change it or leave it out")


def _limits(field: Field, lasts: bool) -> str:
    unit = "s" if lasts else ""
    if lasts and field.low is not None and 0 < field.low * SECOND <= 1:
        return "above 0"
    if field.high is None:
        return f"at least {field.low:.10g}{unit}"
    return f"from {field.low or 0:.10g}{unit} to {field.high:.10g}{unit}"


def check_listeners(listeners: list[tuple[str, str, int]], given: dict[str, Any], findings: Findings) -> None:
    """No two of (key, address, port) on one port of overlapping addresses; 0 is off. Names a key that was given."""
    for index, (key, address, port) in enumerate(listeners):
        for other, other_address, other_port in listeners[:index]:
            if port and port == other_port and _overlap(address, other_address):
                reported, holder = (key, other) if key in given or other not in given else (other, key)
                findings.add(reported, f"is {port}, which is the port of {holder} too", "choose another port")


def _overlap(first: str, second: str) -> bool:
    try:
        one, two = ipaddress.ip_address(first), ipaddress.ip_address(second)
    except ValueError:  # the check of the address reports it
        return False
    return one == two or one.is_unspecified or two.is_unspecified  # an unspecified one takes both families
