"""The alerts of examples/prometheus-alerts.yaml, evaluated by promtool: each fires for the series that it is about, and
none fires for a node that works. The metrics that they name exist, and a document explains each."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.checkout import text_of
from tests.process.supervised import CHECKOUT
from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS

ALERTS = CHECKOUT / "examples/prometheus-alerts.yaml"
MINUTES = 30
# Series of a node that works, in promtool's notation: value, change in each minute, number of minutes.
WORKS = {
    'bulkhead_beat_age_seconds{process="podsync"}': "1x30",
    'bulkhead_process_restarts_total{process="podsync"}': "0x10 1x20",
    'bulkhead_process_troubles{process="podsync"}': "0x5 1x10 0x15",
    'bulkhead_process_open_fds{process="podsync"}': "50x30",
    'bulkhead_process_max_fds{process="podsync"}': "1000x30",
    "kubelet_certificate_manager_client_ttl_seconds": " ".join(["+Inf"] * 31),
    "kubelet_certificate_manager_server_ttl_seconds": "900000-60x30",
    'kubelet_pleg_relist_duration_seconds_bucket{le="5"}': "0+2x30",
    'kubelet_pleg_relist_duration_seconds_bucket{le="10"}': "0+2x30",
    'kubelet_pleg_relist_duration_seconds_bucket{le="+Inf"}': "0+2x30",
    'kubelet_runtime_operations_errors_total{operation_type="pull_image"}': "0+10x30",
}
# Alert -> what of it is different, and the labels of the alert.
FIRES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "BulkheadProcessSilent": ({'bulkhead_beat_age_seconds{process="podsync"}': "0+60x30"}, {"process": "podsync"}),
    "BulkheadProcessRestarts": (
        {'bulkhead_process_restarts_total{process="podsync"}': "0+1x30"},
        {"process": "podsync"},
    ),
    "BulkheadProcessTroubles": ({'bulkhead_process_troubles{process="podsync"}': "2x30"}, {"process": "podsync"}),
    "BulkheadFileDescriptors": ({'bulkhead_process_open_fds{process="podsync"}': "900x30"}, {"process": "podsync"}),
    "KubeletClientCertificateExpires": ({"kubelet_certificate_manager_client_ttl_seconds": "80000-60x30"}, {}),
    "KubeletServerCertificateExpires": ({"kubelet_certificate_manager_server_ttl_seconds": "80000-60x30"}, {}),
    "KubeletRelistSlow": (
        {
            'kubelet_pleg_relist_duration_seconds_bucket{le="5"}': "0x30",
            'kubelet_pleg_relist_duration_seconds_bucket{le="10"}': "0x30",
        },
        {},
    ),
    "KubeletRuntimeErrors": (
        {'kubelet_runtime_operations_errors_total{operation_type="pull_image"}': "0+90x30"},
        {},
    ),
}


@pytest.fixture(autouse=True)
def required() -> None:
    require_command("promtool")


def rules() -> dict[str, dict[str, Any]]:
    """Alert -> its rule."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*words: str) -> str:
    """What promtool prints; it must succeed."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def evaluated(directory: Path, series: dict[str, str], firing: dict[str, dict[str, str]]) -> None:
    """After 30 minutes of these series exactly these alerts fire, each with these labels."""
    inputs = [{"series": of_the_node(name), "values": values} for name, values in series.items()]
    expected = [
        {
            "eval_time": f"{MINUTES}m",
            "alertname": name,
            "exp_alerts": [expected_alert(rule, firing[name])] if name in firing else [],
        }
        for name, rule in rules().items()
    ]
    tests = [{"interval": "1m", "input_series": inputs, "alert_rule_test": expected}]
    file = directory / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def expected_alert(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """The alert of a rule for a series with these labels."""
    labels = {"instance": "n1", **rule["labels"], **labels}
    return {
        "exp_labels": labels,
        "exp_annotations": {key: filled(text, labels) for key, text in rule["annotations"].items()},
    }


def of_the_node(name: str) -> str:
    """The series with the label that a scrape adds."""
    return name.replace("{", '{instance="n1",') if "{" in name else f'{name}{{instance="n1"}}'


def filled(text: str, labels: dict[str, str]) -> str:
    """The annotation with the values of its labels."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)


def test_promtool_reads_every_rule() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", str(ALERTS))


def test_no_alert_fires_for_a_node_that_works(tmp_path: Path) -> None:
    evaluated(tmp_path, WORKS, {})


@pytest.mark.parametrize("alert", rules())
def test_an_alert_fires_for_what_it_is_about_and_no_other_does(alert: str, tmp_path: Path) -> None:
    different, labels = FIRES[alert]
    assert different.keys() <= WORKS.keys()
    evaluated(tmp_path, {**WORKS, **different}, {alert: labels})


def test_every_metric_of_an_alert_exists() -> None:
    named = {name for rule in rules().values() for name in re.findall(r"\b(?:bulkhead|kubelet)_\w+", rule["expr"])}
    declared = set(re.findall(r"^\| `(\w+)`", text_of("docs/metrics.md"), re.MULTILINE))
    assert len(named) >= 9
    assert {name.removesuffix("_bucket") for name in named} <= declared


def test_the_document_explains_every_alert() -> None:
    section = text_of("docs/operations.md").partition("\n## Metrics and alerts\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(rules())
