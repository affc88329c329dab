"""Rules of eviction thresholds and of the graceful shutdown of the node (config.md 2.2). Pure."""

import re
from collections.abc import Mapping
from typing import Any

from shared.config.durations import parse_nanoseconds
from shared.config.fields import EVICTION_SIGNALS
from shared.config.findings import WARNING, Findings
from shared.config.rules_data import SECOND, nanoseconds, note, pairs
from shared.model.quantity import QuantityError, parse_quantity

_PERCENTAGE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)%", re.ASCII)
_HARD, _SOFT, _GRACE = "evictionHard", "evictionSoft", "evictionSoftGracePeriod"
_RECLAIM = "evictionMinimumReclaim"
_TOTAL, _CRITICAL = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
_BY_PRIORITY = "shutdownGracePeriodByPodPriority"


def check_eviction(data: dict[str, Any], findings: Findings) -> None:
    """Check signals, thresholds, grace periods and minimum reclaims."""
    for key in (_HARD, _SOFT, _GRACE, _RECLAIM):
        for signal, text in pairs(data, key):
            if signal in EVICTION_SIGNALS:
                _check_value(key, signal, text, findings)
            else:
                remedy = f"signals are {', '.join(EVICTION_SIGNALS)}"
                named = "is" if not findings.place_of(f"{key}.{signal}").startswith("--") else f'"{signal}" is'
                findings.add(f"{key}.{signal}", f"{named} not an eviction signal", remedy)
    graces = data.get(_GRACE) or {}
    for signal, _ in pairs(data, _SOFT):
        if signal in EVICTION_SIGNALS and signal not in graces:
            note(findings, _SOFT, f".{signal}", "has no grace period", f"add {_GRACE}.{signal}")
    for key in (_HARD, _SOFT):
        for signal, _ in pairs(data, key):
            if signal.startswith("containerfs."):
                what = "has no effect: the threshold follows that of nodefs or imagefs"
                note(findings, key, f".{signal}", what, "remove it", WARNING)


def _check_value(key: str, signal: str, text: str, findings: Findings) -> None:
    inner = f".{signal}"
    if key == _GRACE:
        if not _is_grace(text):
            what = f'is "{text}", must be a duration that is not negative'
            note(findings, key, inner, what, 'such as "1m30s"')
    elif key == _RECLAIM:
        if not _is_amount(text, least_percentage=False):
            what = f'is "{text}", must be a quantity that is not negative or a percentage above 0'
            note(findings, key, inner, what, 'such as "500Mi" or "5%"')
    elif not _is_amount(text, least_percentage=True):
        what = f'is "{text}", must be a positive quantity or a percentage'
        note(findings, key, inner, what, 'such as "100Mi" or "10%"')


def _is_grace(text: str) -> bool:
    try:
        return parse_nanoseconds(text) >= 0
    except ValueError:
        return False


def _is_amount(text: str, *, least_percentage: bool) -> bool:
    """Return whether the text is a threshold (0% to 100%, or an amount above 0) or a minimum reclaim (above 0%, or an
    amount of at least 0)."""
    if text.endswith("%"):
        match = _PERCENTAGE.fullmatch(text)
        return match is not None and (0 <= float(match[1]) <= 100 if least_percentage else float(match[1]) > 0)
    try:
        amount = parse_quantity(text).nanos
    except QuantityError:
        return False
    return amount > 0 if least_percentage else amount >= 0


def check_shutdown(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Check the two periods of a shutdown, and those by priority, which exclude them."""
    total, critical = nanoseconds(data, _TOTAL) or 0, nanoseconds(data, _CRITICAL) or 0
    periods = {_TOTAL: total, _CRITICAL: critical}
    by_priority = bool(data.get(_BY_PRIORITY))
    for key, period in periods.items():
        if gates.get("GracefulNodeShutdown"):
            if period != 0 and period < SECOND:
                findings.add(key, f'is "{data[key]}", must be 0s or at least 1s', "change it")
        elif period > 0:
            what = "is set while feature gate GracefulNodeShutdown is off"
            findings.add(key, what, "leave it out, or switch the gate on")
        if period > 0 and by_priority:
            findings.add(key, f"does not go with {_BY_PRIORITY}", "remove one of them")
    if critical > max(total, 0) and gates.get("GracefulNodeShutdown"):
        what = f"is {data[_CRITICAL]}, must be at most {_TOTAL}, {data.get(_TOTAL) or '0s'}"
        findings.add(_CRITICAL, what, "it is a part of that")
    if by_priority and not gates.get("GracefulNodeShutdownBasedOnPodPriority"):
        what = "is set while feature gate GracefulNodeShutdownBasedOnPodPriority is off"
        findings.add(_BY_PRIORITY, what, "leave it out, or switch the gate on")
