"""What preflight says about logind, where pods have time in a shutdown of the machine."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.cli.preflight import shutdown
from services.cli.preflight.findings import Finding
from services.cli.preflight.shutdown import shutdown_findings
from shared.config.effective import EffectiveConfig
from tests.fakes.logind import a_logind

PERIODS = {"shutdown_grace_period": 30.0}


def a_config(**values: Any) -> EffectiveConfig:
    return EffectiveConfig(node_name="n1", root_dir="/r", run_dir="/r", log_dir="", cert_dir="", **values)


async def found(config: EffectiveConfig, **logind: Any) -> list[Finding]:
    async with a_logind(**logind) as running:
        return await asyncio.to_thread(shutdown_findings, config, 10.0, running.address)


@pytest.mark.parametrize(
    ("logind", "severity", "what"),
    [
        ({"max_delay_seconds": 40}, "ok", "logind waits up to 40 s in a shutdown, and 35 s are needed"),
        (
            {},
            "note",
            (
                "logind waits up to 5 s in a shutdown: the agent raises that to 35 s by "
                "/etc/systemd/logind.conf.d/99-kubelet.conf"
            ),
        ),
        (
            {"serves": False},
            "warning",
            (
                "a shutdown of the machine kills pods without their time: logind: Get: The name "
                "org.freedesktop.login1 was not provided by any .service files"
            ),
        ),
    ],
)
async def test_preflight_says_how_long_logind_waits(logind: Mapping[str, Any], severity: str, what: str) -> None:
    [finding] = await found(a_config(**PERIODS), **logind)
    assert (finding.severity, finding.where, finding.what) == (severity, "shutdownGracePeriod", what)


async def test_a_file_that_overrules_that_of_the_agent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_in = tmp_path / "99-kubelet.conf"
    monkeypatch.setattr(shutdown, "DROP_IN", drop_in)
    drop_in.write_text("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=35\n")
    [finding] = await found(a_config(**PERIODS))
    assert (finding.severity, finding.what) == (
        "warning",
        f"logind waits up to 5 s in a shutdown, although {drop_in} says 35 s",
    )


def test_it_says_nothing_where_pods_have_no_time(tmp_path: Path) -> None:
    assert shutdown_findings(a_config(), 10.0, f"unix:path={tmp_path}/none") == []


def test_a_machine_without_dbus_is_named(tmp_path: Path) -> None:
    by_priority = ({"priority": 0, "shutdownGracePeriodSeconds": 5},)
    config = a_config(shutdown_grace_period_by_pod_priority=by_priority)
    [finding] = shutdown_findings(config, 10.0, f"unix:path={tmp_path}/none")
    assert finding.where == "shutdownGracePeriodByPodPriority"
    assert "cannot reach logind over D-Bus: No such file or directory" in finding.what
