"""Reads the node's pods, with what their claims stand for, and the release of the API server."""

import time

from msgspec import Struct, field

from services.bootstrap.adapters.kubeconfig import resolve_in_child
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.cli.preflight.api_server import ApiServer, ReadError, items_of
from services.cli.preflight.findings import Finding, Section, Severity
from services.cli.preflight.pod_files import read_static_pods
from services.cli.preflight.skew import skew_finding
from shared.config.effective import EffectiveConfig
from shared.model.frozen_copy import replace
from shared.model.objects import Object, namespace
from shared.podspec.references import claim_name

_MAX_CLAIMS = 500
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


class NodePods(Struct, frozen=True, kw_only=True):
    """The pods of the node. `origin`: where they were read, "" = nowhere. `claims`: by namespace/name, the spec of the
    PersistentVolume that a claim of the pods is bound to. `node`: the Node, {} = it was not read."""

    pods: tuple[Object, ...] = ()
    origin: str = ""
    findings: tuple[Finding, ...] = ()
    claims: dict[str, Object] = field(default_factory=dict)
    node: Object = field(default_factory=dict)


def read_cluster(config: EffectiveConfig, timeout: float) -> NodePods:
    """Read the pods from the API server, else from the kubelet's ports, else the static pods from their files.
    `timeout`: seconds for the API server, and again for the ports."""
    found = NodePods()
    credentials = None
    if config.kubeconfig:
        credentials, findings = _credentials(config)
        found = NodePods(findings=findings)
        if credentials is not None:
            found = _from_api_server(config, credentials, time.monotonic() + timeout, findings)
    else:
        what = "no kubeconfig is configured: the node runs alone"
        found = NodePods(findings=(Finding(section=Section.CLUSTER, severity=Severity.NOTE, what=what),))
    if not found.origin:
        found = _read_kubelet(config, credentials, time.monotonic() + timeout, found)
    if not found.origin:
        found = _from_files(config, found)
    return found


def _credentials(config: EffectiveConfig) -> tuple[ResolvedCredentials | None, tuple[Finding, ...]]:
    report = resolve_in_child(config.kubeconfig)
    if report.material is not None:
        return report.material, ()
    if report.absent and config.bootstrap_kubeconfig:
        what, remedy = "does not exist: the node has not joined its cluster yet", "join it first, with the kubelet"
        return None, (_finding(Severity.WARNING, what, config.kubeconfig, remedy),)
    return None, tuple(_finding(Severity.PROBLEM, line) for line in report.problems)


def _from_api_server(
    config: EffectiveConfig, credentials: ResolvedCredentials, deadline: float, findings: tuple[Finding, ...]
) -> NodePods:
    server = credentials.server
    found = NodePods(findings=findings)
    try:
        with ApiServer(server, credentials, deadline) as api:
            release = skew_finding(api.version(), config.emulated_version)
            found = replace(found, findings=(*findings, replace(release, where=server)))
            found = _with_node(found, api, config.node_name)
            pods = api.pods(config.node_name)
            found = replace(found, pods=tuple(pods), origin="the API server")
            return _with_claims(found, api)
    except ReadError as error:
        severity = Severity.WARNING if found.origin else Severity.PROBLEM
        remedy = "see that it is reachable, and that the credentials of the kubeconfig may read it"
        return replace(found, findings=(*found.findings, _finding(severity, str(error), server, remedy)))


def _with_node(found: NodePods, api: ApiServer, name: str) -> NodePods:
    try:
        node = api.node(name)
    except ReadError as error:
        if error.code not in (403, 404):
            raise
        remedy = "is --hostname-override the one of the kubelet?"
        finding = _finding(Severity.PROBLEM, f"the Node cannot be read: {error}", name, remedy)
        return replace(found, findings=(*found.findings, finding))
    info = (node.get("status") or {}).get("nodeInfo") or {}
    what = f"is registered by a kubelet {str(info.get('kubeletVersion') or '?')[:60]}"
    return replace(found, node=node, findings=(*found.findings, _finding(Severity.OK, what, f"Node {name}")))


def _with_claims(found: NodePods, api: ApiServer) -> NodePods:
    """Read the volumes of the pods' claims. A claim that cannot be read becomes one finding."""
    wanted: dict[tuple[str, str], None] = {}
    for pod in found.pods:
        volumes = (pod.get("spec") or {}).get("volumes") or ()
        wanted |= {(namespace(pod), claim): None for volume in volumes if (claim := claim_name(pod, volume))}
    claims: dict[str, Object] = {}
    for space, claim in list(wanted)[:_MAX_CLAIMS]:
        try:
            volume = api.volume_of(space, claim)
        except ReadError as error:
            if error.code == 404:
                continue  # the pod waits for this claim under any kubelet
            what = f"the claim cannot be read: {error}"
            finding = _finding(Severity.WARNING, what, f"{space}/{claim}", "its type of volume is not checked")
            return replace(found, claims=claims, findings=(*found.findings, finding))
        if volume is not None:
            claims[f"{space}/{claim}"] = volume
    if len(wanted) > _MAX_CLAIMS:
        what = f"{len(wanted)} claims are in use; the first {_MAX_CLAIMS} were checked"
        return replace(found, claims=claims, findings=(*found.findings, _finding(Severity.WARNING, what)))
    return replace(found, claims=claims)


def _read_kubelet(
    config: EffectiveConfig, credentials: ResolvedCredentials | None, deadline: float, found: NodePods
) -> NodePods:
    """Read the pods from the kubelet's read-only port, else from its other port with the client certificate of the
    kubeconfig."""
    host = _ANYWHERE.get(config.address, config.address)
    # A kubelet's serving certificate is usually self-signed, so it is not verified. A token is not sent to what cannot
    # be verified.
    anonymous = ResolvedCredentials(server="", insecure_skip_tls_verify=True)
    servers = [(f"http://{host}:{config.read_only_port}", anonymous)] if config.read_only_port else []
    if config.enable_server and credentials is not None and credentials.certificate:
        pair = replace(anonymous, certificate=credentials.certificate, key=credentials.key)
        servers.append((f"https://{host}:{config.port}", pair))
    for server, used in servers:
        try:
            with ApiServer(server, used, deadline, direct=True) as kubelet:
                pods = items_of(kubelet.get("/pods"))
            return replace(found, pods=tuple(pods), origin=f"the kubelet ({server})")
        except ReadError as error:
            finding = Finding(section=Section.PODS, severity=Severity.NOTE, what=str(error), where=f"{server}/pods")
            found = replace(found, findings=(*found.findings, finding))
    return found


def _from_files(config: EffectiveConfig, found: NodePods) -> NodePods:
    what = "the node's pods could not be read"
    remedy = "start the kubelet, or name the pods with --pods (kubectl get pods -A -o yaml --field-selector …)"
    if config.static_pod_path:
        pods, findings = read_static_pods(config.static_pod_path, config.node_name)
        found = replace(found, pods=tuple(pods), findings=(*found.findings, *findings))
        found = replace(found, origin=config.static_pod_path)
        what = "only static pods are known: the node's other pods could not be read"
    if config.kubeconfig or not config.static_pod_path:
        finding = Finding(section=Section.PODS, severity=Severity.WARNING, what=what, remedy=remedy)
        found = replace(found, findings=(*found.findings, finding))
    return found


def _finding(severity: Severity, what: str, where: str = "", remedy: str = "") -> Finding:
    return Finding(section=Section.CLUSTER, severity=severity, what=what, where=where, remedy=remedy)
