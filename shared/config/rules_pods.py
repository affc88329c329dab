"""Rules of how pods run: log directory, restarts, user namespaces, and what this kubelet does not do (config.md 2.2).

Pure. Knows no pod.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from shared.config.findings import Findings
from shared.config.nested import value_of
from shared.config.rules_data import nanoseconds

_RESTART_PERIOD = "crashLoopBackOff.maxContainerRestartPeriod"
_PERIODS = {"fileCheckFrequency": "staticPodPath", "nodeStatusUpdateFrequency": "", "runtimeRequestTimeout": ""}
_IDS, _IDS_KEY = 65536, "userNamespaces.idsPerPod"


def check_pods(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Check runOnce, periods, the directory of logs, the longest back-off, and IDs per pod."""
    if data.get("runOnce") and not (data.get("staticPodPath") or data.get("staticPodURL")):
        findings.add("runOnce", "is true without static pods", "set staticPodPath or staticPodURL, or remove it")
    if (path := data.get("podLogsDir")) is not None:
        check_pod_logs_dir(path, findings)
    _check_periods(data, findings)
    _check_restart_period(data, gates, findings)
    ids = value_of(data, _IDS_KEY)
    if ids is not None and ids % _IDS:
        findings.add(_IDS_KEY, f"is {ids}, must be a multiple of {_IDS}", "leave it out for one such block")


def check_pod_logs_dir(path: str, findings: Findings) -> None:
    """Check `podLogsDir` after resolution: absolute, cleaned, ASCII."""
    if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        findings.add("podLogsDir", f'is "{path}", must be absolute and without //, . or ..', "write it as /a/b/c")
    elif not path.isascii():
        findings.add("podLogsDir", f'is "{path}", must be ASCII only', "rename the directory")


def _check_periods(data: dict[str, Any], findings: Findings) -> None:
    """Zero, which only a flag can give, would mean no pause and no time; less than zero is beyond the plain limits."""
    for key, needed_for in _PERIODS.items():
        if nanoseconds(data, key) == 0 and (not needed_for or data.get(needed_for)):
            findings.add(key, f'is "{data[key]}", must be above 0', "leave it out for the default")
    asked = nanoseconds(data, "httpCheckFrequency")
    if data.get("staticPodURL") and asked is not None and asked <= 0:
        what = f'is "{data["httpCheckFrequency"]}", must be above 0'
        findings.add("httpCheckFrequency", what, "leave it out for the default")


def _check_restart_period(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    period, text = nanoseconds(data, _RESTART_PERIOD), value_of(data, _RESTART_PERIOD)
    if period is None:
        return
    if not gates.get("KubeletCrashLoopBackOffMax"):
        what = "is set while feature gate KubeletCrashLoopBackOffMax is off"
        findings.add(_RESTART_PERIOD, what, "leave it out, or switch the gate on")
    elif not 1000 <= period // 10**6 <= 300_000:  # in milliseconds, the rest is cut off
        findings.add(_RESTART_PERIOD, f'is "{text}", must be from 1s to 300s', "change it or leave it out")
