"""The configuration of the embedded containerd follows from what the machine permits."""

import json
import tomllib
from typing import Any

import pytest

from services.bootstrap.core.containerd_config import Machine, read_version, render_config, render_network
from shared.config.effective import EmbeddedContainerd
from shared.model.frozen_copy import replace

EMBEDDED = EmbeddedContainerd(
    root="/r", state="/s", socket="/run/b/c.sock", config_file="/run/b/c.toml", cni_conf_dir="/run/b/cni", bridge="b0",
    pod_cidr="10.7.0.0/16",
)  # fmt: skip
ABLE = Machine(
    may_lower_oom_score=True, overlay_works=True, has_portmap=True, has_apparmor=True,
    handlers=("runc", "crun"), containerd_version=(1, 6),
)  # fmt: skip
POOR = Machine(
    may_lower_oom_score=False, overlay_works=False, has_portmap=True, has_apparmor=False,
    masquerading_failure="iptables is not installed", handlers=("runc",), containerd_version=(1, 6),
)  # fmt: skip


def rendered(machine: Machine, embedded: EmbeddedContainerd = EMBEDDED, *, systemd: bool = False) -> dict[str, Any]:
    return tomllib.loads(render_config(embedded, machine, systemd_cgroup=systemd))


def test_containerd_1_gets_a_configuration_of_version_two() -> None:
    config = rendered(ABLE, systemd=True)
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert (config["version"], config["root"], config["state"]) == (2, "/r", "/s")
    assert config["grpc"]["address"] == "/run/b/c.sock"
    assert cri["sandbox_image"] == "localhost/bulkhead/pause:1"
    assert cri["containerd"]["snapshotter"] == "overlayfs"
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"]
    assert not cri["restrict_oom_score_adj"]
    # a busy machine's shims answer late, and a containerd that was killed must not kill their containers for it
    assert config["timeouts"] == {"io.containerd.timeout.shim.load": "30s", "io.containerd.timeout.task.state": "10s"}


def test_containerd_1_7_resolves_the_cdi_devices_of_device_plugins() -> None:
    for version, enabled in (((1, 6), None), ((1, 7), True)):
        cri = rendered(replace(ABLE, containerd_version=version))["plugins"]["io.containerd.grpc.v1.cri"]
        assert cri.get("enable_cdi") is enabled


@pytest.mark.parametrize("version", [(1, 6), (2, 1)])
def test_containers_get_selinux_labels_where_the_policy_has_them(version: tuple[int, int]) -> None:
    for has_selinux in (False, True):
        config = rendered(replace(ABLE, containerd_version=version, has_selinux=has_selinux))
        plugins = config["plugins"]
        runtime = plugins["io.containerd.grpc.v1.cri" if version < (2, 0) else "io.containerd.cri.v1.runtime"]
        assert runtime["enable_selinux"] is has_selinux


def test_containerd_2_gets_a_configuration_of_version_three_with_the_same_values() -> None:
    config = rendered(replace(ABLE, containerd_version=(2, 1)), systemd=True)
    runtime, images = (config["plugins"][f"io.containerd.cri.v1.{name}"] for name in ("runtime", "images"))
    assert (config["version"], config["root"], config["state"]) == (3, "/r", "/s")
    assert config["grpc"]["address"] == "/run/b/c.sock"
    assert images == {
        "snapshotter": "overlayfs",
        "pinned_images": {"sandbox": "localhost/bulkhead/pause:1"},
        "registry": {"config_path": ""},
    }
    one = rendered(ABLE, systemd=True)
    of_one = one["plugins"]["io.containerd.grpc.v1.cri"]
    assert runtime["containerd"].pop("default_runtime_name") == "runc"
    assert runtime["containerd"]["runtimes"] == of_one["containerd"]["runtimes"]
    assert runtime["cni"].pop("bin_dirs") == [of_one["cni"].pop("bin_dir")]
    assert runtime["cni"] == of_one["cni"]
    assert {key: value for key, value in runtime.items() if not isinstance(value, dict)} == {
        "restrict_oom_score_adj": False, "disable_apparmor": False, "enable_selinux": False,
        "tolerate_missing_hugetlb_controller": True,
    }  # fmt: skip
    assert config["timeouts"] == one["timeouts"]
    assert config["plugins"]["io.containerd.grpc.v1.cri"] == {
        key: of_one[key] for key in ("disable_tcp_service", "stream_server_address", "stream_server_port")
    }
    # NRI is on in 2.x, at a path that a containerd of the machine has as well
    assert config["plugins"]["io.containerd.nri.v1.nri"] == {"socket_path": "/run/b/nri.sock"}


def test_containerd_2_0_knows_one_directory_of_plugins() -> None:
    config = rendered(replace(ABLE, containerd_version=(2, 0)))
    assert config["plugins"]["io.containerd.cri.v1.runtime"]["cni"]["bin_dir"] == "/usr/lib/cni"


@pytest.mark.parametrize("version", [(1, 6), (2, 1)])
def test_each_installed_program_for_containers_is_a_handler_and_one_is_the_default(version: tuple[int, int]) -> None:
    plugin = {1: "io.containerd.grpc.v1.cri", 2: "io.containerd.cri.v1.runtime"}[version[0]]
    machine = replace(ABLE, containerd_version=version)
    both = rendered(machine, replace(EMBEDDED, default_runtime="crun"))["plugins"][plugin]["containerd"]
    assert both["default_runtime_name"] == "crun"
    assert {name: handler["options"] for name, handler in both["runtimes"].items()} == {
        name: {"BinaryName": name, "SystemdCgroup": False} for name in ("runc", "crun")
    }
    one = rendered(replace(machine, handlers=("runc",)))["plugins"][plugin]["containerd"]
    assert (one["default_runtime_name"], list(one["runtimes"])) == ("runc", ["runc"])


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n", (1, 6)),
        ("containerd github.com/containerd/containerd/v2 2.1.9+unknown \n", (2, 1)),
        ("containerd containerd.io v1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da\n", (1, 7)),
        ("containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d\n", (2, 0)),
        ("", None),
        ("containerd: not found", None),
        ("containerd x " + "9" * 5000 + ".1", None),
    ],
)
def test_the_version_is_the_one_that_the_program_prints(printed: str, version: tuple[int, int] | None) -> None:
    assert read_version(printed) == version


def test_a_machine_that_allows_less_is_asked_for_less() -> None:
    config = rendered(POOR)
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
    assert network["plugins"][0]["ipMasq"] is (machine is ABLE)
