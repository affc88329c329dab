"""Renders the configuration of the embedded containerd and its pod network: config.toml and the CNI list. Pure.

It writes configuration version 2 for containerd 1.6 and 1.7, which read no later one, and version 3 for 2.x, whose CRI
consists of two plugins. It depends on the machine only through `Machine`.
"""

import ipaddress
import json
import posixpath
import re
from typing import Any

from msgspec import Struct

from shared.config.effective import EmbeddedContainerd

OLDEST_CONTAINERD = (1, 6)  # whose configuration one gets that does not name its version
_MAX_SHIM_ANSWER_SECONDS = 30  # a shim that never answers blocks the runtime for so long, once per container
_MAX_STATE_SECONDS = 10  # as many as the load of one container may take when containerd starts


class Machine(Struct, frozen=True, kw_only=True):
    """The facts of the machine on which the configuration of containerd depends."""

    may_lower_oom_score: bool  # CAP_SYS_RESOURCE
    overlay_works: bool  # the root directory may hold an overlay's upper layer
    has_portmap: bool  # the CNI plugin for host ports is installed
    has_apparmor: bool
    masquerading_failure: str = ""  # why neither masquerading nor host ports can be set up
    has_selinux: bool = False  # SELinux is on; its policy and the root directory have the labels of containers
    handlers: tuple[str, ...] = ("runc",)  # the programs for containers that are installed: runc, crun
    containerd_version: tuple[int, int] = OLDEST_CONTAINERD


def read_version(text: str) -> tuple[int, int] | None:
    """Return the major and minor version in what `containerd --version` prints; None where it has none."""
    found = re.match(r"containerd \S+ v?(\d{1,4})\.(\d{1,4})", text)
    return (int(found[1]), int(found[2])) if found else None


def render_config(embedded: EmbeddedContainerd, machine: Machine, *, systemd_cgroup: bool) -> str:
    """Return the text of config.toml, in the version of the configuration that this containerd reads."""
    is_version_3 = machine.containerd_version >= (2, 0)
    plugins = _render_plugins_of_version_3 if is_version_3 else _render_plugins_of_version_2
    runtime = "io.containerd.cri.v1.runtime" if is_version_3 else "io.containerd.grpc.v1.cri"
    return f"""\
# Written before every start of containerd; edit the BulkheadConfiguration instead.
version = {3 if is_version_3 else 2}
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
  "io.containerd.timeout.shim.load" = "{_MAX_SHIM_ANSWER_SECONDS}s"
  "io.containerd.timeout.task.state" = "{_MAX_STATE_SECONDS}s"

{plugins(embedded, machine)}\
{"".join(_render_handler(runtime, name, systemd_cgroup) for name in machine.handlers)}"""


def _render_plugins_of_version_2(embedded: EmbeddedContainerd, machine: Machine) -> str:
    return f"""\
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {_toml(embedded.sandbox_image)}
{_CDI if machine.containerd_version >= (1, 7) else ""}\
{_render_limits(machine)}\
{_STREAM_SERVER}
  [plugins."io.containerd.grpc.v1.cri".cni]
{_render_cni(embedded, machine)}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {_toml(embedded.registry_config_path)}

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter_of(machine)}"
    default_runtime_name = {_toml(embedded.default_runtime)}
"""


def _render_plugins_of_version_3(embedded: EmbeddedContainerd, machine: Machine) -> str:
    return f"""\
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter_of(machine)}"

  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {_toml(embedded.sandbox_image)}

  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {_toml(embedded.registry_config_path)}

[plugins."io.containerd.grpc.v1.cri"]
{_STREAM_SERVER}
# Without this NRI takes the socket from another containerd of the machine.
[plugins."io.containerd.nri.v1.nri"]
  socket_path = {_toml(f"{posixpath.dirname(embedded.socket)}/nri.sock")}

[plugins."io.containerd.cri.v1.runtime"]
{_render_limits(machine)}
  [plugins."io.containerd.cri.v1.runtime".cni]
{_render_cni(embedded, machine)}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = {_toml(embedded.default_runtime)}
"""


# containerd 2.0 resolves CDI devices without this line, and 1.6 cannot resolve them.
_CDI = """\
  enable_cdi = true
"""
_STREAM_SERVER = """\
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"""


def _render_limits(machine: Machine) -> str:
    return f"""\
  restrict_oom_score_adj = {"false" if machine.may_lower_oom_score else "true"}
  disable_apparmor = {"false" if machine.has_apparmor else "true"}
  enable_selinux = {"true" if machine.has_selinux else "false"}
  tolerate_missing_hugetlb_controller = true
"""


def _render_cni(embedded: EmbeddedContainerd, machine: Machine) -> str:
    directory = _toml(embedded.cni_bin_dir)
    return f"""\
    {f"bin_dirs = [{directory}]" if machine.containerd_version >= (2, 1) else f"bin_dir = {directory}"}
    conf_dir = {_toml(embedded.cni_conf_dir)}
    max_conf_num = 1
"""


def _render_handler(plugin: str, name: str, systemd_cgroup: bool) -> str:
    return f"""
    [plugins."{plugin}".containerd.runtimes.{name}]
      runtime_type = "io.containerd.runc.v2"

      [plugins."{plugin}".containerd.runtimes.{name}.options]
        BinaryName = "{name}"
        SystemdCgroup = {"true" if systemd_cgroup else "false"}
"""


def snapshotter_of(machine: Machine) -> str:
    """Return the name of the snapshotter of images and containers."""
    return "overlayfs" if machine.overlay_works else "native"


def render_network(embedded: EmbeddedContainerd, machine: Machine) -> str:
    """Return the CNI list: a bridge whose addresses host-local assigns. containerd adds the loopback by itself.

    Assigned addresses are kept in the state directory, which a reboot empties together with the pods.
    """
    network = ipaddress.IPv4Network(embedded.pod_cidr)
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": embedded.bridge,
        "isGateway": True,
        "ipMasq": not machine.masquerading_failure,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{embedded.state}/cni-addresses",
            "ranges": [[{"subnet": str(network)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    plugins = [bridge]
    if machine.has_portmap and not machine.masquerading_failure:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
    return json.dumps({"cniVersion": "0.4.0", "name": embedded.bridge, "plugins": plugins}, indent=2) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML basic string
