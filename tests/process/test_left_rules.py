"""NAT rules that CNI plugins have made for pods which are gone, with the iptables of this machine.
tests/machine/test_package.py has a machine on which all pods end at once, and the kernel goes on.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]

BRIDGE, OTHER = "left-pods0", "other-pods0"
REMOVE = """\
import logging, sys
from pathlib import Path
from services.bootstrap.adapters.left_rules import remove_left_rules
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
remove_left_rules(sys.argv[1], Path(sys.argv[2]))
"""


class Network:
    """Has a network namespace with NAT rules, and a directory that stands for /sys/class/net. `kind` of iptables is nft
    or legacy."""

    def __init__(self, holder: int, kind: str, directory: Path) -> None:
        self._enter = ("nsenter", f"--net=/proc/{holder}/ns/net")
        self._kind, self.interfaces, self._programs = kind, directory / "net", directory / "bin"
        self.interfaces.mkdir()
        self._programs.mkdir()
        for name in ("iptables", "iptables-restore"):
            (self._programs / name).symlink_to(f"/usr/sbin/{name.replace('iptables', f'iptables-{kind}')}")

    def iptables(self, *words: str) -> str:
        command = (*self._enter, f"iptables-{self._kind}", "-t", "nat", *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def add_pod(self, network: str, number: int, *, host_port: bool = False) -> None:
        """Make the rules that the plugins bridge and portmap make."""
        chain, name = f"CNI-{network[:5]}{number}", f'name: "{network}" id: "{number:064x}"'
        comment = ("-m", "comment", "--comment")
        self.iptables("-N", chain)
        self.iptables("-A", chain, "-d", "10.89.0.0/16", *comment, name, "-j", "ACCEPT")
        self.iptables("-A", chain, "!", "-d", "224.0.0.0/4", *comment, name, "-j", "MASQUERADE")
        self.iptables("-A", "POSTROUTING", "-s", f"10.89.0.{number}/32", *comment, name, "-j", chain)
        if host_port:
            target = f"CNI-DN-{network[:5]}{number}"
            self.iptables("-N", "CNI-HOSTPORT-DNAT")
            self.iptables("-N", target)
            self.iptables("-A", target, "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", "10.89.0.2:80")
            self.iptables("-A", "CNI-HOSTPORT-DNAT", "-p", "tcp", *comment, f"dnat {name}", "-m", "multiport",
                          "--dports", "80", "-j", target)  # fmt: skip

    def remove_left(self) -> str:
        """Run what is tested, and return what it has logged."""
        environment = {**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        command = (*self._enter, sys.executable, "-c", REMOVE, BRIDGE, str(self.interfaces))
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.fixture(params=["nft", "legacy"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo made; exec sleep infinity"], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"made\n"
        network = Network(holder.pid, request.param, tmp_path)
        if request.param == "legacy":
            try:
                network.iptables("-S")
            except subprocess.CalledProcessError:
                pytest.skip("this kernel has no tables of iptables-legacy")
        yield network
    finally:
        holder.kill()
        holder.communicate()


def test_rules_of_pods_that_are_gone_are_removed_and_those_of_other_networks_stay(network: Network) -> None:
    network.add_pod(OTHER, 9)
    others = network.iptables("-S")
    network.add_pod(BRIDGE, 2, host_port=True)
    network.add_pod(BRIDGE, 3)
    assert network.remove_left() == f"7 NAT rules of pods that are gone are removed; the network is {BRIDGE}\n"
    assert sorted(network.iptables("-S").splitlines()) == sorted([*others.splitlines(), "-N CNI-HOSTPORT-DNAT"])
    assert network.remove_left() == ""


def test_rules_stay_while_a_pod_is_at_the_bridge(network: Network) -> None:
    network.add_pod(BRIDGE, 2)
    before = network.iptables("-S")
    (network.interfaces / BRIDGE / "brif" / "veth0").mkdir(parents=True)
    assert network.remove_left() == ""
    assert network.iptables("-S") == before


def test_rules_that_cannot_be_removed_are_named_in_one_line(network: Network) -> None:
    """Another program's rule leads to the chain of a pod: nothing is removed."""
    network.add_pod(BRIDGE, 2)
    network.iptables("-A", "POSTROUTING", "-j", f"CNI-{BRIDGE[:5]}2")
    before = network.iptables("-S")
    [line] = network.remove_left().splitlines()
    assert line.startswith("NAT rules of pods that are gone cannot be removed: "), line
    assert network.iptables("-S") == before
