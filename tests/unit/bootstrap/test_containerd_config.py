"""The configuration of the embedded containerd follows from what the machine permits."""

import json
import tomllib

import pytest

from services.bootstrap.core.containerd_config import Machine, render_config, render_network
from shared.config.effective import EmbeddedContainerd

EMBEDDED = EmbeddedContainerd(
    root="/r", state="/s", socket="/run/b/c.sock", config_file="/run/b/c.toml", cni_conf_dir="/run/b/cni", bridge="b0",
    pod_cidr="10.7.0.0/16",
)  # fmt: skip
ABLE = Machine(may_lower_oom_score=True, overlay_works=True, has_iptables=True, has_portmap=True, has_apparmor=True)
POOR = Machine(may_lower_oom_score=False, overlay_works=False, has_iptables=False, has_portmap=True, has_apparmor=False)


def test_the_configuration_is_toml_of_version_two() -> None:
    config = tomllib.loads(render_config(EMBEDDED, ABLE, systemd_cgroup=True))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert (config["version"], config["root"], config["state"]) == (2, "/r", "/s")
    assert config["grpc"]["address"] == "/run/b/c.sock"
    assert cri["sandbox_image"] == "localhost/bulkhead/pause:1"
    assert cri["containerd"]["snapshotter"] == "overlayfs"
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"]
    assert not cri["restrict_oom_score_adj"]
    # a busy machine's shims answer late, and a containerd that was killed must not kill their containers for it
    assert config["timeouts"] == {"io.containerd.timeout.shim.load": "30s", "io.containerd.timeout.task.state": "10s"}


def test_a_machine_that_allows_less_is_asked_for_less() -> None:
    config = tomllib.loads(render_config(EMBEDDED, POOR, systemd_cgroup=False))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert config["oom_score"] == 0
    assert cri["restrict_oom_score_adj"]
    assert cri["disable_apparmor"]
    assert cri["containerd"]["snapshotter"] == "native"


@pytest.mark.parametrize(("machine", "plugins"), [(ABLE, ["bridge", "portmap"]), (POOR, ["bridge"])])
def test_host_ports_need_iptables(machine: Machine, plugins: list[str]) -> None:
    network = json.loads(render_network(EMBEDDED, machine))
    assert [plugin["type"] for plugin in network["plugins"]] == plugins
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.7.0.0/16"}]]
    assert network["plugins"][0]["ipMasq"] is machine.has_iptables
