"""A machine of its own as a node of the tests' control plane, which runs out here: in there the package, with the files
of a cluster in place of its own."""

import asyncio
import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml

from shared.kube import paths
from shared.model.objects import Object
from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import Root, build_for_machines, cached_root
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import is_ready
from tests.support.clusters.cluster import Cluster, joined_config
from tests.support.clusters.control_plane import ControlPlane
from tests.support.waits.deadline import WAIT_SECONDS

_MACHINE_SECONDS = 3 * WAIT_SECONDS  # for what takes some on an idle machine
CLIENT_CA = "/etc/kubernetes/pki/ca.crt"
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
# A machine beside much other work takes longer than systemd waits for a start, and for a sign of life.
_SLOW = "[Service]\nTimeoutStartSec=1000\nWatchdogSec=1000\n"
_ARGS = f"""\
--config=/etc/bulkhead/kubelet.yaml
--root-dir=/var/lib/bulkhead/kubelet
--kubeconfig={KUBECONFIG}
--v=2
"""


class MachineCluster(Cluster):
    """`async with MachineCluster(directory) as cluster:`; `cluster.machine` has joined where `join` is true, else it
    has the credentials of the node and no package. `options`: of the kernel's command line. `package`: that of this
    checkout, if it is built already. `own_document`: the BulkheadConfiguration in place of that of the package."""

    own_document: Object | None = None

    def __init__(
        self,
        directory: Path,
        *,
        root: Root | None = None,
        options: tuple[str, ...] = (),
        join: bool = True,
        package: Path | None = None,
        **given: Any,
    ) -> None:
        super().__init__(directory, **given)
        self._root, self._options, self._join, self._package = root, options, join, package
        self.machine: Machine
        self.network: MachineNetwork

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _enter(self) -> None:
        self.network = self._stack.enter_context(MachineNetwork(with_host=True))
        (self.directory / "plane").mkdir()
        plane = ControlPlane(self.directory / "plane", address=self.network.host_ip, **self._plane)
        self.plane = await self._stack.enter_async_context(plane)
        machine = Machine(
            self.directory / "machine", name=NODE, network=self.network, root=self._root or cached_root("install"),
            options=self._options,
        )  # fmt: skip
        self.machine = self._stack.enter_context(machine)
        machine.write(CLIENT_CA, self.plane.ca_file.read_text())
        machine.write(KUBECONFIG, whole_kubeconfig(self.plane.kubeconfig_for_node(NODE)), "0600")
        if self._join:
            await self.join()
            machine.import_images()

    async def join(self) -> None:
        """Install and start the package as a node of the cluster, and wait until it is Ready, so that its runtime
        answers."""
        machine = self.machine
        self.install()
        document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        self.configure({**document, **joined_config(CLIENT_CA), **self._config})
        machine.write("/etc/systemd/system/bulkhead.service.d/slow.conf", _SLOW)
        machine.must("systemctl", "daemon-reload")
        machine.must("systemctl", "enable", "bulkhead")
        machine.must("systemctl", "start", "--no-block", "bulkhead")
        await self.wait_node_ready()

    def install(self) -> None:
        """Install the package of this checkout."""
        package = self._package or build_for_machines(self.directory / "release")
        shutil.copy(package, self.machine.shared / "bulkhead.deb")
        self.machine.must("dpkg", "--install", "/host/bulkhead.deb")

    def configure(self, fields: Object) -> None:
        """Replace the files of the package by those of a cluster, with these fields of the KubeletConfiguration."""
        ours = list(yaml.safe_load_all(self.machine.must("cat", "/etc/bulkhead/kubelet.yaml")))
        kubelet = {"staticPodPath": ours[0]["staticPodPath"], "cgroupDriver": "systemd", **fields}
        own = [self.own_document] if self.own_document else ours[1:]
        self.machine.write("/etc/bulkhead/kubelet.yaml", yaml.safe_dump_all([kubelet, *own]))
        self.machine.write("/etc/bulkhead/kubelet.args", _ARGS)

    async def wait_node_ready(self, seconds: float = _MACHINE_SECONDS) -> None:
        """See Cluster."""
        await super().wait_node_ready(seconds)

    async def wait_ready(self, *names: str, seconds: float = _MACHINE_SECONDS) -> None:
        """See Cluster."""
        await super().wait_ready(*names, seconds=seconds)

    async def wait_served(self, *names: str, seconds: float = _MACHINE_SECONDS) -> None:
        """See Cluster."""
        await self.wait_ready(*names, seconds=seconds)

        async def served() -> bool:
            answer = await asyncio.to_thread(self.ask_kubelet, "pods", check=False)
            pods = json.loads(answer)["items"] if answer else []
            return {pod["metadata"]["name"] for pod in pods if is_ready(pod)} >= set(names)

        await self.wait_for(served, f"pods {', '.join(names)} to be ready on the node's port", seconds, every=1.0)

    async def wait_pod(
        self, name: str, holds: Callable[[Object], object], what: str, seconds: float = _MACHINE_SECONDS
    ) -> Object:
        """See Cluster."""
        return await super().wait_pod(name, holds, what, seconds)

    def ask_kubelet(self, path: str, *, check: bool = True) -> str:
        """Return what the kubelet's port answers to the API server; without `check` "" where it does not answer."""
        return self.plane.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{path}", check=check).stdout

    async def end_pods(self) -> None:
        """Delete the pods that there are, and wait until the API server has none."""
        self.machine.must("true")  # one that does not answer any more would be waited for in vain
        names = [pod["metadata"]["name"] for pod in await self.items(paths.pods("default"))]
        for name in names:
            await self.delete_pod(name)
        await self.wait_gone(*names, seconds=_MACHINE_SECONDS)


def whole_kubeconfig(path: Path) -> str:
    """A kubeconfig with the content of the files that it names in their place."""
    document = yaml.safe_load(path.read_text())
    [cluster], [user] = document["clusters"], document["users"]
    for part, names in (
        (cluster["cluster"], ["certificate-authority"]),
        (user["user"], ["client-certificate", "client-key"]),
    ):
        for name in names:
            part[f"{name}-data"] = base64.b64encode(Path(part.pop(name)).read_bytes()).decode()
    return yaml.safe_dump(document)
