"""The configuration of the embedded containerd and its pod network: config.toml and the CNI list. Pure.

Configuration version 2, which containerd 1.6 and 1.7 read and 2.x translates. Knows the machine only as `Machine`.
"""

import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from shared.config.effective import EmbeddedContainerd

_SHIM_ANSWERS_WITHIN = 30  # seconds; one that never answers keeps the runtime away for as long, once per container
_STATE_WITHIN = 10  # seconds, as many as the whole look at a container may take when containerd starts


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What of the machine matters to containerd."""

    may_lower_oom_score: bool  # CAP_SYS_RESOURCE
    overlay_works: bool  # the root directory may hold an overlay's upper layer
    has_iptables: bool  # masquerading and host ports can be set up
    has_portmap: bool  # the CNI plugin for host ports is installed
    has_apparmor: bool


def render_config(embedded: EmbeddedContainerd, machine: Machine, *, systemd_cgroup: bool) -> str:
    """config.toml."""
    restrict = "false" if machine.may_lower_oom_score else "true"
    return f"""\
# Written by bootstrap at every start; edit the BulkheadConfiguration instead.
version = 2
root = {_toml(embedded.root)}
state = {_toml(embedded.state)}
oom_score = {-999 if machine.may_lower_oom_score else 0}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[grpc]
  address = {_toml(embedded.socket)}

# How long a containerd that was started again waits for a shim to answer (5 s by itself: then it kills the container),
# and for the state of its task (2 s: then it calls the container unknown, and that is to be killed, too).
[timeouts]
  "io.containerd.timeout.shim.load" = "{_SHIM_ANSWERS_WITHIN}s"
  "io.containerd.timeout.task.state" = "{_STATE_WITHIN}s"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {_toml(embedded.sandbox_image)}
  restrict_oom_score_adj = {restrict}
  disable_apparmor = {"false" if machine.has_apparmor else "true"}
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  tolerate_missing_hugetlb_controller = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {_toml(embedded.cni_bin_dir)}
    conf_dir = {_toml(embedded.cni_conf_dir)}
    max_conf_num = 1

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {_toml(embedded.registry_config_path)}

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{"overlayfs" if machine.overlay_works else "native"}"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = {"true" if systemd_cgroup else "false"}
"""


def render_network(embedded: EmbeddedContainerd, machine: Machine) -> str:
    """The CNI list: a bridge whose addresses host-local gives out. containerd adds the loopback by itself.

    Addresses are remembered in the state directory, which a reboot empties together with the pods.
    """
    network = ipaddress.IPv4Network(embedded.pod_cidr)
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": embedded.bridge,
        "isGateway": True,
        "ipMasq": machine.has_iptables,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{embedded.state}/cni-addresses",
            "ranges": [[{"subnet": str(network)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    plugins = [bridge]
    if machine.has_portmap and machine.has_iptables:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
    return json.dumps({"cniVersion": "0.4.0", "name": embedded.bridge, "plugins": plugins}, indent=2) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML basic string
