"""A machine of its own laid out as `kubeadm join` of 1.29 and newer leaves a node: a Go kubelet has joined the tests'
control plane, on Debian's containerd, and our package is installed and has changed nothing yet."""

import shutil
from pathlib import Path
from typing import Any, Self

import yaml

from services.bootstrap.core.containerd_config import Machine as ContainerdHost
from services.bootstrap.core.containerd_config import render_network
from shared.config.effective import EmbeddedContainerd
from tests.machine.joined import CLIENT_CA, KUBECONFIG, MachineCluster
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import joined_config
from tests.support.clusters.control_plane import assets
from tests.support.kubeadm.unit import DROP_IN, UNIT
from tests.support.machines.installed_node import PAUSE
from tests.support.waits.deadline import WAIT_SECONDS

CONTAINERD = "/run/containerd/containerd.sock"
OWN, OURS = "/usr/bin/kubelet", "/opt/bulkhead/bin/kubelet"
PACKAGED_UNIT = "/usr/lib/systemd/system/kubelet.service"
BY_HAND = "/etc/systemd/system/kubelet.service.d"
_PAIR = "/var/lib/kubelet/pki/kubelet-client-current.pem"
# kubeadm writes fields that have no value, too.
_CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "systemd",
    "clusterDNS": ["10.96.0.10"],
    "clusterDomain": "cluster.local",
    "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
    "cpuManagerReconcilePeriod": "0s",
    "evictionPressureTransitionPeriod": "0s",
    "fileCheckFrequency": "0s",
    "healthzBindAddress": "127.0.0.1",
    "healthzPort": 10248,
    "httpCheckFrequency": "0s",
    "imageMaximumGCAge": "0s",
    "imageMinimumGCAge": "0s",
    "logging": {"flushFrequency": 0, "options": {"json": {"infoBufferSize": "0"}, "text": {"infoBufferSize": "0"}},
                "verbosity": 0},
    "memorySwap": {},
    "nodeStatusReportFrequency": "0s",
    "nodeStatusUpdateFrequency": "0s",
    "rotateCertificates": True,
    "runtimeRequestTimeout": "0s",
    "shutdownGracePeriod": "0s",
    "shutdownGracePeriodCriticalPods": "0s",
    "staticPodPath": "/etc/kubernetes/manifests",
    "streamingConnectionIdleTimeout": "0s",
    "syncFrequency": "0s",
    "volumeStatsAggPeriod": "0s",
}  # fmt: skip
_INSTANCE = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
}
_CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE.name}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
# This kernel shows no frequency, without which a Go kubelet ends.
_CPUINFO = """\
[Unit]
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'sed "s/^processor.*/&\\\\ncpu MHz\\\\t\\\\t: 2000.000/" /proc/cpuinfo > /run/cpuinfo && mount --bind /run/cpuinfo /proc/cpuinfo'
[Install]
WantedBy=multi-user.target
"""  # noqa: E501
_FLAGS = f"--container-runtime=remote --container-runtime-endpoint=unix://{CONTAINERD}"
_CRASH_FILE = "/run/crash-at"


class KubeadmMachine(MachineCluster):
    """`async with KubeadmMachine(directory) as node:`: Ready under the Go kubelet."""

    def __init__(self, directory: Path, **given: Any) -> None:
        super().__init__(directory, join=False, **given)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            self._lay_out()
            self.install()
            self.machine.must("systemctl", "enable", "--now", "kubelet")
            await self.wait_node_ready()
        except BaseException as error:
            print(self.machine.must("journalctl", "--boot", "--no-pager", "--lines=60", "--unit=kubelet"))
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    def _lay_out(self) -> None:
        machine = self.machine
        embedded = EmbeddedContainerd(
            root="", state="/run/containerd", socket="", config_file="", cni_conf_dir="", bridge="cni0",
            pod_cidr="10.244.1.0/24",
        )  # fmt: skip
        host = ContainerdHost(may_lower_oom_score=True, overlay_works=True, has_portmap=True, has_apparmor=True)
        machine.write("/etc/containerd/config.toml", _CONTAINERD)
        machine.write("/etc/cni/net.d/10-pods.conflist", render_network(embedded, host))
        machine.must("systemctl", "restart", "containerd")
        machine.import_images(CONTAINERD)
        # kubeadm lets the kubelet's kubeconfig name the pair that the kubelet renews.
        document = yaml.safe_load(machine.must("cat", KUBECONFIG))
        pair = self.plane.authority.directory / f"node-{NODE}"
        machine.write(
            _PAIR.replace("current", "2026-01-01-00-00-00"), _text(pair, ".crt") + _text(pair, ".key"), "0600"
        )
        machine.must("ln", "-s", _PAIR.replace("current", "2026-01-01-00-00-00"), _PAIR)
        document["users"][0]["user"] = {"client-certificate": _PAIR, "client-key": _PAIR}
        machine.write(KUBECONFIG, yaml.safe_dump(document), "0600")
        machine.must("mkdir", "-p", "/etc/kubernetes/manifests")
        machine.write("/var/lib/kubelet/config.yaml", yaml.safe_dump({**_CONFIG, **_joined()}))
        machine.write("/var/lib/kubelet/instance-config.yaml", yaml.safe_dump(_INSTANCE), "0600")
        machine.write("/var/lib/kubelet/kubeadm-flags.env", f'KUBELET_KUBEADM_ARGS="{_FLAGS}"\n')
        machine.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n")
        machine.write("/etc/systemd/system/cpuinfo.service", _CPUINFO)
        machine.must("systemctl", "enable", "--now", "cpuinfo")
        shutil.copy(assets() / "kubelet", machine.shared)
        machine.must("install", "/host/kubelet", OWN)
        machine.write(PACKAGED_UNIT, UNIT)
        machine.write(f"{PACKAGED_UNIT}.d/10-kubeadm.conf", DROP_IN)
        machine.must("systemctl", "daemon-reload")

    def tasks(self) -> set[str]:
        """The id and the process of each running container and sandbox."""
        return self.machine.tasks(CONTAINERD)

    def does(self, *arguments: str) -> str:
        """Run the command `bulkhead`, which must succeed; its standard output."""
        return self.machine.must("bulkhead", *arguments)

    def kill(self, command: str, point: str) -> None:
        """Run the command until it is killed at the point; one kubelet runs after it, never two."""
        self.machine.write(_CRASH_FILE, point)
        done = self.machine.call("bulkhead", command, CRASH_AT=f"@{_CRASH_FILE}")
        assert done.returncode == -9, (command, point, done.returncode, done.stdout, done.stderr)
        self.wait_for_one_kubelet()

    def wait_for_one_kubelet(self) -> str:
        """The program, once one kubelet runs; AssertionError where two do."""
        shown = self.machine.run("sh", "-c", _WAIT_FOR_ONE, seconds=2 * WAIT_SECONDS).stdout.split()
        assert len(shown) == 1, shown
        return shown[0]


# A process that is a kubelet, and not a child of one: both are started by systemd.
_WAIT_FOR_ONE = f"""\
while :; do
    found=$(ps -e -o ppid=,args= |
        awk '$1 == 1 {{ for (i = 2; i <= 3; i++) if ($i == "{OWN}" || $i == "{OURS}") print $i }}')
    [ -n "$found" ] && break
    sleep 0.2
done
echo $found
"""


def _joined() -> dict[str, Any]:
    fields = joined_config(CLIENT_CA)
    del fields["address"]  # the kubelet's default is the same
    return dict(fields)


def _text(path: Path, suffix: str) -> str:
    return path.with_name(path.name + suffix).read_text()
