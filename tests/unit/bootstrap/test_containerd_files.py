"""The network of the embedded containerd asks for what iptables can do on this machine."""

import json
import logging
from pathlib import Path

import pytest

from services.bootstrap.adapters import containerd_host
from services.bootstrap.controllers.containerd_files import write_containerd_files
from shared.config.effective import EffectiveConfig, EmbeddedContainerd

FAILURE = "iptables cannot masquerade: Table does not exist"


@pytest.mark.parametrize(("failure", "plugins"), [("", ["bridge", "portmap"]), (FAILURE, ["bridge"])])
def test_where_iptables_does_not_work_pods_start_without_it_and_the_log_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: str,
    plugins: list[str],
) -> None:
    monkeypatch.setattr(containerd_host, "masquerading_failure", lambda: failure)
    (tmp_path / "portmap").touch()
    embedded = EmbeddedContainerd(
        path="/bin/true", root=f"{tmp_path}/root", state=f"{tmp_path}/state", socket=f"{tmp_path}/socket",
        config_file=f"{tmp_path}/config.toml", cni_conf_dir=f"{tmp_path}/cni", cni_bin_dir=str(tmp_path),
    )  # fmt: skip
    config = EffectiveConfig(
        node_name="n", root_dir="/r", run_dir="/r", log_dir="/r", cert_dir="/r", embedded_containerd=embedded
    )
    with caplog.at_level(logging.WARNING, "services.bootstrap.controllers.containerd_files"):
        write_containerd_files(config)
    network = json.loads((tmp_path / "cni/10-bulkhead.conflist").read_text())
    assert [plugin["type"] for plugin in network["plugins"]] == plugins
    assert network["plugins"][0]["ipMasq"] is not bool(failure)
    said = [f"{FAILURE}: pods reach this node only, and host ports do not work"] if failure else []
    assert [record.message for record in caplog.records if record.name.endswith("containerd_files")] == said
