"""An nfs volume of a real server, which is a second machine: a pod writes to it, also after the server was away for
30 s, and ends while the server is away. The tests are one plan, in this order."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import WITH_MORE, build_for_machines, cached_root
from tests.support.agents.world import busybox_pod
from tests.support.machines.installed_node import MANIFESTS

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(1500)]

EXPORT = "/srv/export"
LOG = f"{EXPORT}/log"
PODS = "/var/lib/bulkhead/kubelet/pods"
_OTHER_RUNS = "ps -e -o args= | grep -q '^sleep 100000$'"
_AWAY_SECONDS = 30
_WRITE = "while :; do date +%s >> /data/log; sleep 1; done"


@dataclass(frozen=True)
class Pair:
    """A server and the node whose pods use it."""

    network: MachineNetwork
    server: Machine
    node: Machine

    @contextmanager
    def without_server(self) -> Iterator[None]:
        """The server's cable is out."""
        self._cable("nomaster")
        try:
            yield
        finally:
            self._cable("master", self.network.bridge)

    def _cable(self, *state: str) -> None:
        """Change the server's end out here. The interface stays up, for the kernel of a machine that cannot write to it
        gives its own one up."""
        tap = f"tap{self.server.ip.rpartition('.')[2]}"
        subprocess.run(self.network.inside("ip", "link", "set", tap, *state), check=True)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("nfs")
    package, root = build_for_machines(directory / "release"), cached_root("install", *WITH_MORE)
    with (
        MachineNetwork() as network,
        Machine(directory / "server", name="server", network=network, root=root) as server,
        Machine(directory / "node", name="node", network=network, root=root) as node,
    ):
        server.must("mkdir", "--mode=0777", EXPORT)
        server.write("/etc/exports", f"{EXPORT} *(rw,no_root_squash,no_subtree_check,insecure)\n")
        server.must("systemctl", "restart", "nfs-server")
        server.must("exportfs", "-ra")
        package.rename(node.shared / "bulkhead.deb")
        node.must("dpkg", "--install", "/host/bulkhead.deb")
        node.must("systemctl", "enable", "--now", "bulkhead")
        node.must("bulkhead", "status", f"--wait-ready={node.within:g}")
        node.import_images()
        try:
            yield Pair(network, server, node)
        finally:
            print(node.last_lines())


def add_writer(pair: Pair) -> None:
    """A pod that writes a line a second to the export."""
    pod = busybox_pod("writer", "sh", "-c", _WRITE)
    pod["spec"]["volumes"] = [{"name": "data", "nfs": {"server": pair.server.ip, "path": EXPORT}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    pair.node.write(f"{MANIFESTS}/writer.json", json.dumps(pod))


def test_what_a_pod_writes_is_on_the_server(pair: Pair) -> None:
    add_writer(pair)
    pair.server.wait_until(f"[ $(cat {LOG} | wc -l) -gt 2 ]")
    assert f"{pair.server.ip}:{EXPORT} " in pair.node.must("grep", " nfs4 ", "/proc/mounts")


def test_a_server_that_is_away_for_30_s_holds_up_its_pod_and_nothing_else(pair: Pair) -> None:
    before, began = pair.node.tasks(), time.monotonic()
    with pair.without_server():
        pair.node.add_pod("other")
        pair.node.wait_until(_OTHER_RUNS)
        pair.node.must("bulkhead", "status", f"--wait-ready={pair.node.within:g}")
        pair.node.remove_pod("other")
        pair.node.wait_until(f"! {_OTHER_RUNS}")
        time.sleep(max(0.0, began + _AWAY_SECONDS - time.monotonic()))
        written = int(pair.server.must("sh", "-c", f"cat {LOG} | wc -l"))  # by the server's serial line
    pair.server.wait_until(f"[ $(cat {LOG} | wc -l) -gt {written + 2} ]")
    assert before <= pair.node.tasks()  # the same container goes on


def test_a_server_that_is_away_at_the_end_of_a_pod_holds_up_neither_its_end_nor_other_pods(pair: Pair) -> None:
    [uid] = [pod["uid"] for pod in pair.node.pods() if pod["name"].startswith("writer")]
    with pair.without_server():
        pair.node.must("rm", f"{MANIFESTS}/writer.json")
        pair.node.add_pod("other")
        pair.node.wait_until(_OTHER_RUNS)
        pair.node.wait_until("! grep -q ' nfs4 ' /proc/mounts")
        pair.node.wait_until(f"[ ! -e {PODS}/{uid} ]")
    log = pair.server.must("sh", "-c", f"cat {LOG} | wc -l")
    pair.node.must("bulkhead", "status", f"--wait-ready={pair.node.within:g}")
    assert pair.server.must("sh", "-c", f"cat {LOG} | wc -l") == log
