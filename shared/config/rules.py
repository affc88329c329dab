"""Values that are of the right type and still wrong (reference config.md 2.2), and combinations that cannot be.

Pure: merged data in, findings out. Knows neither defaults nor the machine.
"""

import ipaddress
import posixpath
import re
from typing import Any

from shared.config.durations import parse_duration
from shared.config.fields import CHOICES, DURATION_RANGES, EVICTION_SIGNALS, RANGES, TLS_CIPHER_SUITES
from shared.config.findings import Findings

_ZERO_IS_UNSET = (
    "port", "maxOpenFiles", "syncFrequency", "fileCheckFrequency", "runtimeRequestTimeout",
    "nodeStatusUpdateFrequency", "nodeStatusReportFrequency",
)  # fmt: skip
_SOCKET_PATH_LIMIT = 107  # bytes, of sockaddr_un
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([numkKMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")


def value_of(data: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, None where absent."""
    current: Any = data
    for part in key.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current


def check_rules(data: dict[str, Any], findings: Findings) -> None:
    """Note every rule the merged data breaks; types have been checked before."""
    for key, (low, high) in RANGES.items():
        value = value_of(data, key)
        if value is not None and not low <= value <= high and not (value == 0 and key in _ZERO_IS_UNSET):
            limits = f"at least {low:g}" if high >= 2**31 else f"from {low:g} to {high:g}"
            findings.add(key, f"is {value}, must be {limits}", "change it or leave it out")
    for key, (low, high) in DURATION_RANGES.items():
        text = value_of(data, key)
        if text is not None and not low <= parse_duration(text) <= high:
            if parse_duration(text) == 0 and key in _ZERO_IS_UNSET:
                continue
            limits = f"at least {low:g}s" if high > 1e9 else f"from {low:g}s to {high:g}s"
            findings.add(key, f'is "{text}", must be {limits}', "change it or leave it out")
    for key, choices in CHOICES.items():
        value = value_of(data, key)
        if value and value not in choices:
            findings.add(key, f'is "{value}", must be one of {", ".join(choices)}', "names are case-sensitive")
    _check_addresses(data, findings)
    _check_tls(data, findings)
    _check_combinations(data, findings)
    _check_eviction(data, findings)


def _check_addresses(data: dict[str, Any], findings: Findings) -> None:
    for key in ("address", "healthzBindAddress"):
        if text := data.get(key):
            try:
                ipaddress.ip_address(text)
            except ValueError:
                findings.add(key, f'is "{text}", must be an IP address', "such as 0.0.0.0 or 127.0.0.1")
    for key in ("containerRuntimeEndpoint", "imageServiceEndpoint"):
        text = data.get(key)
        if text and not text.startswith("unix:///") and not text.startswith("/"):
            findings.add(key, f'is "{text}", must be a local socket', "write unix:///path/to/the.sock")
        elif text and (length := len(text.removeprefix("unix://").encode())) > _SOCKET_PATH_LIMIT:
            what = f"is a path of {length} bytes, sockets have at most {_SOCKET_PATH_LIMIT}"
            findings.add(key, what, "move the socket, or give a symlink to its directory")
    for index, text in enumerate(data.get("clusterDNS") or ()):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            place, what = findings.place_of("clusterDNS"), f'is "{text}", must be an IP address'
            findings.add(f"clusterDNS[{index}]", what, "such as 10.96.0.10", place)


def _check_tls(data: dict[str, Any], findings: Findings) -> None:
    for index, name in enumerate(data.get("tlsCipherSuites") or ()):
        if name not in TLS_CIPHER_SUITES:
            findings.add(
                f"tlsCipherSuites[{index}]",
                f'"{name}" is not a cipher suite',
                "names are case-sensitive, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                place=findings.place_of("tlsCipherSuites"),
            )


def check_listeners(listeners: list[tuple[str, str, int]], given: dict[str, Any], findings: Findings) -> None:
    """No two of (key, address, port) on one port of overlapping addresses; 0 is off. Names a key that was given."""
    for index, (key, address, port) in enumerate(listeners):
        for other, other_address, other_port in listeners[:index]:
            if port and port == other_port and _overlap(address, other_address):
                blamed, holder = (key, other) if key in given or other not in given else (other, key)
                findings.add(blamed, f"is {port}, which is the port of {holder} too", "choose another port")


def _overlap(first: str, second: str) -> bool:
    try:
        one, two = ipaddress.ip_address(first), ipaddress.ip_address(second)
    except ValueError:  # a finding of its own
        return False
    return one == two or any(
        wide.is_unspecified and wide.version in (6, narrow.version)  # :: may listen on IPv4 too
        for wide, narrow in ((one, two), (two, one))
    )


def _check_combinations(data: dict[str, Any], findings: Findings) -> None:
    if data.get("runOnce"):
        findings.add("runOnce", "is true, which this kubelet does not do", "remove it")
    if data.get("cgroupDriver") == "systemd":
        remedy = "use cgroupfs here and in the container runtime"
        findings.add("cgroupDriver", "the systemd driver is not built yet", remedy)
    parallel = data.get("maxParallelImagePulls")
    if parallel is not None and parallel > 1 and data.get("serializeImagePulls"):
        findings.add(
            "maxParallelImagePulls",
            f"is {parallel} while serializeImagePulls is true",
            "set serializeImagePulls to false or maxParallelImagePulls to 1",
        )
    root = data.get("cgroupRoot") or ""
    if ".." in root.split("/"):
        findings.add("cgroupRoot", f'is "{root}", must be without ..', "write the cgroup's path from the top")
    high, low = data.get("imageGCHighThresholdPercent", 85), data.get("imageGCLowThresholdPercent", 80)
    if high is not None and low is not None and low >= high:
        findings.add("imageGCLowThresholdPercent", f"is {low}, must be below the high threshold {high}", "lower it")
    factor = data.get("memoryThrottlingFactor")
    if factor is not None and not 0 < factor <= 1:
        findings.add("memoryThrottlingFactor", f"is {factor}, must be above 0 and at most 1", "leave it out for 0.9")
    enforced = data.get("enforceNodeAllocatable")
    enforced = ["pods"] if enforced is None else enforced
    if data.get("cgroupsPerQOS") is False and any(item != "none" for item in enforced):
        findings.add("cgroupsPerQOS", "is false while enforceNodeAllocatable is not empty", "set that to [none]")


def check_pod_logs_dir(path: str, findings: Findings) -> None:
    """`podLogsDir` after resolution: absolute, cleaned, ASCII."""
    if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        findings.add("podLogsDir", f'is "{path}", must be absolute and without //, . or ..', "write it as /a/b/c")
    elif not path.isascii():
        findings.add("podLogsDir", f'is "{path}", must be ASCII only', "rename the directory")


def _check_eviction(data: dict[str, Any], findings: Findings) -> None:
    for key in ("evictionHard", "evictionSoft"):
        for signal, text in (data.get(key) or {}).items():
            dotted = f"{key}.{signal}"
            if signal not in EVICTION_SIGNALS:
                findings.add(dotted, "is not an eviction signal", f"signals are {', '.join(EVICTION_SIGNALS)}")
            elif not _is_threshold(text or ""):
                findings.add(
                    dotted, f'is "{text}", must be a positive quantity or a percentage', 'such as "100Mi" or "10%"'
                )
    graces = data.get("evictionSoftGracePeriod") or {}
    for signal in data.get("evictionSoft") or {}:
        if signal not in graces:
            findings.add(f"evictionSoft.{signal}", "has no grace period", f"add evictionSoftGracePeriod.{signal}")


def _is_threshold(text: str) -> bool:
    if text.endswith("%"):
        try:
            return 0 <= float(text[:-1]) <= 100
        except ValueError:
            return False
    match = _QUANTITY.fullmatch(text)
    return match is not None and float(match[1]) > 0
