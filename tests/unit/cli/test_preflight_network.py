"""What preflight says of iptables depends on what the network of the pods asks it for."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.preflight import pod_network
from services.cli.preflight.examination import Options, examine
from services.cli.preflight.findings import Severity
from services.cli.preflight.pod_network import network_findings
from shared.config.effective import EffectiveConfig, EmbeddedContainerd

FAILURE = "iptables cannot masquerade: Table does not exist"
BRIDGE = {"type": "bridge", "ipMasq": True}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
EMBEDDED = EmbeddedContainerd(root="", state="", socket="", config_file="", cni_conf_dir="")


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of networks of a machine whose iptables does not work."""
    monkeypatch.setattr(pod_network, "DEFAULT_CNI_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(pod_network, "masquerading_failure", lambda: FAILURE)
    return tmp_path


def config(embedded: EmbeddedContainerd | None = None) -> EffectiveConfig:
    return EffectiveConfig(
        node_name="n", root_dir="/r", run_dir="/run/b", log_dir="/l", cert_dir="", embedded_containerd=embedded
    )


@pytest.mark.parametrize(
    ("network", "asked"),
    [
        ({"plugins": [BRIDGE, PORTMAP]}, "masquerading (ipMasq) and host ports (portmap)"),
        ({"plugins": [{"type": "bridge"}, PORTMAP]}, "host ports (portmap)"),
        (BRIDGE, "masquerading (ipMasq)"),
        ({"plugins": [BRIDGE | {"ipMasqBackend": "nftables"}, PORTMAP | {"backend": "nftables"}]}, ""),
        ({"plugins": [{"type": "bridge", "ipMasq": False}, {"type": "calico"}]}, ""),
        ({"plugins": "bridge"}, ""),
        ({"plugins": [None, 1]}, ""),
        ([], ""),
    ],
)
def test_only_what_the_network_asks_for_is_warned_of(networks: Path, network: Any, asked: str) -> None:
    (networks / "10-pods.conflist").write_text(json.dumps(network))
    found = network_findings(config())
    assert [finding.what for finding in found] == ([f"{FAILURE}: pods do not start that need {asked}"] if asked else [])
    for finding in found:
        assert (finding.severity, finding.where) == (Severity.WARNING, str(networks / "10-pods.conflist"))
        assert finding.remedy.endswith("update-alternatives --config iptables")


def test_the_first_file_by_its_name_counts_as_for_a_runtime(networks: Path) -> None:
    (networks / "05-note.txt").write_text("no network")
    (networks / "10-a.conf").write_text(json.dumps({"type": "calico"}))
    (networks / "20-b.conflist").write_text(json.dumps({"plugins": [BRIDGE]}))
    assert network_findings(config()) == []
    (networks / "10-a.conf").unlink()
    assert len(network_findings(config())) == 1


@pytest.mark.parametrize("text", ["", "{", '"\udcff', "[" * 100_000])
def test_a_file_that_is_no_network_is_left_to_the_runtime(networks: Path, text: str) -> None:
    (networks / "10-pods.conflist").write_text(text, errors="surrogateescape")
    assert network_findings(config()) == []


def test_the_embedded_containerd_does_without(networks: Path) -> None:
    (found,) = network_findings(config(EMBEDDED))
    assert (found.severity, found.where) == (Severity.WARNING, "embeddedContainerd")
    assert found.what == f"{FAILURE}: pods reach this node only, and host ports do not work"


def test_a_missing_iptables_is_to_be_installed(networks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_network, "masquerading_failure", lambda: "iptables is not installed")
    (found,) = network_findings(config(EMBEDDED))
    assert found.remedy == "apt-get install iptables"


def test_newer_plugins_need_no_iptables_beside_nft(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_network, "masquerading_failure", lambda: "iptables is not installed")
    monkeypatch.setattr(pod_network, "_NFT_PATH", str(tmp_path))
    (networks / "10-pods.conflist").write_text(json.dumps({"plugins": [BRIDGE]}))
    (found,) = network_findings(config())
    assert "nft" not in found.what
    (tmp_path / "nft").touch(0o755)
    (found,) = network_findings(config())
    assert found.what.endswith("(CNI plugins of version 1.6 and later use nft instead, which is installed)")


def test_an_iptables_that_works_is_fine(networks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_network, "masquerading_failure", lambda: "")
    (networks / "10-pods.conflist").write_text(json.dumps({"plugins": [BRIDGE]}))
    (found,) = network_findings(config())
    assert found.severity is Severity.OK


def test_the_examination_has_the_finding(networks: Path) -> None:
    (networks / "10-pods.conflist").write_text(json.dumps({"plugins": [BRIDGE]}))
    found = examine(Options(flags=("--fail-swap-on=false",), pods=str(networks), timeout=30)).findings
    assert [finding.severity for finding in found if finding.what.startswith(FAILURE)] == [Severity.WARNING]
