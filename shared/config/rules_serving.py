"""Rules of the kubelet's own server and of what it connects to: addresses, sockets, TLS (config.md 2.2, 5.2). Pure."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from shared.config.fields import TLS_CIPHER_SUITES
from shared.config.findings import DANGER, ERROR, WARNING, Findings
from shared.config.nested import value_of
from shared.config.node_settings import parse_address
from shared.config.rules_data import note

_MAX_SOCKET_PATH_BYTES = 107  # of sockaddr_un
_CURVES = {23: "P-256", 24: "P-384", 25: "P-521", 29: "X25519"}
_HYBRID_CURVES = {4587: "SecP256r1MLKEM768", 4588: "X25519MLKEM768", 4589: "SecP384r1MLKEM1024"}
_OLD_VERSIONS = ("VersionTLS10", "VersionTLS11")
_INSECURE = frozenset(
    name
    for name in TLS_CIPHER_SUITES
    if name.startswith("TLS_RSA_") or "_RC4_" in name or "_3DES_" in name or name.endswith("_CBC_SHA256")
)


def check_serving(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings, release: str) -> None:
    """Check addresses, endpoints, TLS, and the handlers that need one another; `release` is major.minor."""
    _check_addresses(data, findings)
    _check_endpoints(data, findings)
    _check_tls(data, findings)
    if data.get("serverTLSBootstrap") and not gates.get("RotateKubeletServerCertificate"):
        what = "is true while feature gate RotateKubeletServerCertificate is off"
        findings.add("serverTLSBootstrap", what, "switch the gate on, or this off")
    if data.get("enableSystemLogQuery"):
        if not gates.get("NodeLogQuery"):
            what = "is true while feature gate NodeLogQuery is off"
            findings.add("enableSystemLogQuery", what, "switch the gate on, or this off")
        if data.get("enableSystemLogHandler") is False:
            what = "is true while enableSystemLogHandler is false"
            findings.add("enableSystemLogQuery", what, "set both to true, or this to false")
    hidden, (major, minor) = data.get("showHiddenMetricsForVersion"), release.split(".")
    if hidden and hidden != (previous := f"{major}.{int(minor) - 1}"):
        what = f'is "{hidden}", must be the release before this one, {previous}'
        findings.add("showHiddenMetricsForVersion", what, "write that, or leave it out")


def _check_addresses(data: dict[str, Any], findings: Findings) -> None:
    listening = data.get("enableServer", True) is not False or bool(data.get("readOnlyPort"))
    needed = {"address": listening, "healthzBindAddress": data.get("healthzPort", 10248) != 0}
    for key, used in needed.items():
        text = data.get(key)
        if used and text is not None and not _is_address(text):
            findings.add(key, f'is "{text}", must be an IP address', "such as 0.0.0.0 or 127.0.0.1")


def check_open_access(data: dict[str, Any], refuse: bool, findings: Findings) -> None:
    """Report a server that lets every host run commands in every container; `refuse` makes that an error."""
    address = data.get("address") or "0.0.0.0"
    anonymous = value_of(data, "authentication.anonymous.enabled")
    if not (data.get("enableServer") and anonymous and value_of(data, "authorization.mode") == "AlwaysAllow"):
        return
    if not _is_address(address) or ipaddress.ip_address(address).is_loopback:
        return
    what = (
        f"is true while authorization.mode is AlwaysAllow and address is {address}: every host that reaches port "
        f"{data.get('port')} may run commands in every container"
    )
    remedy = "set it to false, or authorization.mode to Webhook, or address to 127.0.0.1"
    findings.add("authentication.anonymous.enabled", what, remedy, severity=ERROR if refuse else DANGER)


def check_cluster_dns(data: dict[str, Any], findings: Findings) -> None:
    """Warn of servers that are none: the kubelet logs and skips them."""
    for index, text in enumerate(data.get("clusterDNS") or ()):
        if parse_address(text) is None:
            what, remedy = f'is "{text}", which is no IP address, and is left out', "such as 10.96.0.10"
            note(findings, "clusterDNS", f"[{index}]", what, remedy, WARNING)


def usable_cluster_dns(data: dict[str, Any]) -> tuple[str, ...]:
    """Return the servers of `clusterDNS` that are IP addresses; the others are skipped."""
    return tuple(str(address) for text in data.get("clusterDNS") or () if (address := parse_address(text)))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _check_endpoints(data: dict[str, Any], findings: Findings) -> None:
    if data.get("containerRuntimeEndpoint") == "":
        findings.add("containerRuntimeEndpoint", "is empty", "write unix:///path/to/the.sock, or leave it out")
    for key in ("containerRuntimeEndpoint", "imageServiceEndpoint"):
        text = data.get(key)
        if not text:
            continue
        path = text.removeprefix("unix://").removeprefix("unix:")
        if not path.startswith("/"):
            findings.add(key, f'is "{text}", must be a local socket', "write unix:///path/to/the.sock")
        elif (length := len(path.encode())) > _MAX_SOCKET_PATH_BYTES:
            what = f"is a path of {length} bytes, sockets have at most {_MAX_SOCKET_PATH_BYTES}"
            findings.add(key, what, "move the socket, or give a symlink to its directory")


def _check_tls(data: dict[str, Any], findings: Findings) -> None:
    suites = data.get("tlsCipherSuites") or ()
    for index, name in enumerate(suites):
        if name not in TLS_CIPHER_SUITES:
            remedy = "names are case-sensitive, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            note(findings, "tlsCipherSuites", f"[{index}]", f'"{name}" is not a cipher suite', remedy)
        elif name in _INSECURE:
            what = f"{name} is an insecure cipher suite"
            note(findings, "tlsCipherSuites", f"[{index}]", what, "leave it out", WARNING)
    if suites and data.get("tlsMinVersion") == "VersionTLS13":
        what = "is ignored with tlsMinVersion VersionTLS13: the suites of TLS 1.3 cannot be chosen"
        findings.add("tlsCipherSuites", what, "leave it out", severity=WARNING)
    if data.get("tlsMinVersion") in _OLD_VERSIONS and value_of(data, "authentication.x509.clientCAFile"):
        what = f"is {data['tlsMinVersion']}, with which client certificates signed with SHA-1 would be accepted"
        findings.add("tlsMinVersion", what, "set it to VersionTLS12, or remove authentication.x509.clientCAFile")
    _check_curves(data.get("tlsCurvePreferences") or (), findings)


def _check_curves(curves: Sequence[int], findings: Findings) -> None:
    """Python's ssl restricts OpenSSL to one curve, which has a number of OpenSSL's objects; from 3.15 on to a list."""
    known = ", ".join(f"{number} ({name})" for number, name in _CURVES.items())
    without = "leave tlsCurvePreferences out, and OpenSSL offers its own curves"
    for index, number in enumerate(curves):
        if number in _HYBRID_CURVES:
            what = f"{number} ({_HYBRID_CURVES[number]}) cannot be chosen with Python's ssl"
            note(findings, "tlsCurvePreferences", f"[{index}]", what, without)
        elif number not in _CURVES:
            note(findings, "tlsCurvePreferences", f"[{index}]", f"{number} is not a known curve", f"known are {known}")
        elif number in curves[:index]:
            note(findings, "tlsCurvePreferences", f"[{index}]", f"{number} is given twice", "remove one of them")
    if len(set(curves)) > 1:
        what = f"has {len(curves)} curves, of which Python's ssl takes one"
        findings.add("tlsCurvePreferences", what, f"name one, such as 23 (P-256), or {without}")
