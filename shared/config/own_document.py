"""Reads the agent's own document, `BulkheadConfiguration`, which stands beside that of the kubelet: what it sets, and
what is wrong in it. Pure.
"""

from collections.abc import Mapping
from typing import Any

from shared.agent.places import AgentPaths
from shared.config.decoding import decode
from shared.config.docker import DOCKER, docker_shim
from shared.config.document import Document
from shared.config.durations import parse_duration
from shared.config.effective import DEFAULT_RECORD_AGE_SECONDS, DEFAULT_RECORD_BYTES, OfflinePods
from shared.config.embedded import embedded_containerd
from shared.config.fields import BULKHEAD_CONFIGURATION
from shared.config.findings import ERROR, Findings
from shared.model.device_action import DeviceAction
from shared.version import KUBERNETES_VERSION, RELEASES

OWN_API_VERSION, OWN_KIND = "bulkhead/v1alpha1", "BulkheadConfiguration"
DEVICE_PLUGIN_WAIT = "devicePluginWait"
DEVICE_UNHEALTHY_ACTION = "deviceUnhealthyAction"
EMULATED_VERSION = "emulatedVersion"
MAX_PLUGIN_WAIT_SECONDS = 24 * 3600
OFFLINE_PODS = "offlinePods"
MIN_RECORD_AGE_SECONDS = 60
MIN_RECORD_BYTES, MAX_RECORD_BYTES = 64 << 10, 256 << 20


def is_own_document(document: Document) -> bool:
    """Return whether the document says that it is a BulkheadConfiguration."""
    return (document.data.get("apiVersion"), document.data.get("kind")) == (OWN_API_VERSION, OWN_KIND)


def own_document(
    extension: Document | None, flags: Mapping[str, Any], file: str, places: AgentPaths, findings: Findings
) -> dict[str, Any]:
    """Return the fields of EffectiveConfig that the document sets, {} where something is wrong in it. `extension`: the
    document, None = there is none. `flags`: those given without a key of KubeletConfiguration, by name. Relative paths
    begin at the directory of `file`."""
    if extension is None:
        docker = docker_shim({}, flags, file, places, findings)
        return {"docker": docker} if docker else {}
    own = Findings(places=extension.places, default_place=file)
    for key, place, first in extension.repeated:
        own.add(key, f"is given twice, first at {first}", "remove one of them", place)
    given = decode(extension.data, BULKHEAD_CONFIGURATION, extension.places, own, unknown=ERROR).data
    fields: dict[str, Any] = {}
    if not own.lines:
        if embedded := embedded_containerd(given.get("embeddedContainerd", {}), file, places, own):
            fields["embedded_containerd"] = embedded
        fields["docker"] = docker_shim(given.get(DOCKER, {}), flags, file, places, own)
        if embedded and fields["docker"]:
            what = "and embeddedContainerd are both enabled, but a node has one container runtime"
            own.add(DOCKER, what, "disable one of them")
        wait = parse_duration(given.get(DEVICE_PLUGIN_WAIT, "5m"))
        if not 0 <= wait <= MAX_PLUGIN_WAIT_SECONDS:
            own.add(DEVICE_PLUGIN_WAIT, f'is "{given[DEVICE_PLUGIN_WAIT]}", must be from 0s to 24h', "change it")
        fields["device_plugin_wait"] = wait
        action = given.get(DEVICE_UNHEALTHY_ACTION, DeviceAction.NONE)
        if action not in tuple(DeviceAction):
            what = f'is "{action}", must be {", ".join(DeviceAction)}'
            own.add(DEVICE_UNHEALTHY_ACTION, what, "choose one of them")
        fields["device_unhealthy_action"] = action
        version = given.get(EMULATED_VERSION, KUBERNETES_VERSION)
        if version not in RELEASES:
            what = f'is "{version}", must be {", ".join(RELEASES)}'
            own.add(EMULATED_VERSION, what, f'choose one of them, or leave it out for "{KUBERNETES_VERSION}"')
        fields["emulated_version"] = version
        fields["offline_pods"] = _offline_pods(given.get(OFFLINE_PODS, {}), own)
    findings.include(own)
    return {} if own.lines else fields


def _offline_pods(given: dict[str, Any], findings: Findings) -> OfflinePods | None:
    """Return the settings of the section, None where it is not enabled."""
    age = parse_duration(given["maxAge"]) if "maxAge" in given else DEFAULT_RECORD_AGE_SECONDS
    if age < MIN_RECORD_AGE_SECONDS:
        what = f'is "{given["maxAge"]}", must be at least {MIN_RECORD_AGE_SECONDS}s'
        findings.add(f"{OFFLINE_PODS}.maxAge", what, "change it")
    size = given.get("maxBytes", DEFAULT_RECORD_BYTES)
    if not MIN_RECORD_BYTES <= size <= MAX_RECORD_BYTES:
        what = f"is {size}, must be from {MIN_RECORD_BYTES} to {MAX_RECORD_BYTES}"
        findings.add(f"{OFFLINE_PODS}.maxBytes", what, "change it")
    return OfflinePods(max_age=age, max_bytes=size) if given.get("enabled", False) else None
