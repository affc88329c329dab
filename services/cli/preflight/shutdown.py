"""Examines whether logind waits for the pods in a shutdown, where the configuration gives them time. Only reads."""

import asyncio

from services.cli.preflight.findings import Finding, Section, Severity
from shared.config.effective import EffectiveConfig
from shared.logind.connection import LogindConnection, LogindError
from shared.logind.max_delay import DROP_IN, drop_in_text
from shared.model.shutdown_groups import MAX_STATUS_SECONDS, configured_groups, total_seconds

_KEYS = ("shutdownGracePeriod", "shutdownGracePeriodByPodPriority")


def shutdown_findings(config: EffectiveConfig, timeout: float, address: str | None = None) -> list[Finding]:
    """Return a finding about logind; none where pods get no time. `timeout`: seconds that logind has to answer;
    `address`: of the bus that it is on, None = the system's."""
    by_priority = config.shutdown_grace_period_by_pod_priority
    groups = configured_groups(config.shutdown_grace_period, config.shutdown_grace_period_critical_pods, by_priority)
    if not groups:
        return []
    needed, where = total_seconds(groups) + MAX_STATUS_SECONDS, _KEYS[bool(by_priority)]
    try:
        found = asyncio.run(_max_delay(timeout, address))
    except (LogindError, TimeoutError) as error:
        what = f"a shutdown of the machine kills pods without their time: {error or 'logind does not answer'}"
        return [_finding(Severity.WARNING, where, what, "start dbus and systemd-logind")]
    if found >= needed:
        what = f"logind waits up to {found:g} s in a shutdown, and {needed:g} s are needed"
        return [_finding(Severity.OK, where, what)]
    if _is_raised(needed):
        what = f"logind waits up to {found:g} s in a shutdown, although {DROP_IN} says {needed:g} s"
        remedy = "remove InhibitDelayMaxSec from the files with later names, then: systemctl kill -s HUP systemd-logind"
        return [_finding(Severity.WARNING, where, what, remedy)]
    what = f"logind waits up to {found:g} s in a shutdown: the agent raises that to {needed:g} s by {DROP_IN}"
    return [_finding(Severity.NOTE, where, what)]


def _is_raised(needed: float) -> bool:
    """Return whether the agent has raised the time already, so that something else makes it shorter."""
    try:
        return DROP_IN.read_text() == drop_in_text(needed)
    except (OSError, ValueError):
        return False


async def _max_delay(timeout: float, address: str | None) -> float:
    async with asyncio.timeout(timeout):
        connection = await LogindConnection.open(address)
        try:
            return await connection.max_delay_seconds()
        finally:
            await connection.close()


def _finding(severity: Severity, where: str, what: str, remedy: str = "") -> Finding:
    return Finding(section=Section.MACHINE, severity=severity, what=what, where=where, remedy=remedy)
