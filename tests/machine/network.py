"""A network of its own for machines: a bridge in a network namespace, which leads nowhere, or to one address of this
machine, and ends with its process."""

import itertools
import os
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_DEVICE = "mach"
_NETWORKS = 200  # at most, that have an address of this machine
_SCRIPT = """\
set -e
ip link set lo up
ip link add {bridge} type bridge
ip link set {bridge} up
echo up
exec sleep infinity
"""


@dataclass(frozen=True)
class Address:
    """The address of one machine in its network, and the names of what it needs for it."""

    name: str
    number: int
    prefix: str  # the first three numbers of the addresses of its network

    @property
    def ip(self) -> str:
        """Its IPv4 address."""
        return f"{self.prefix}.{self.number}"

    @property
    def tap(self) -> str:
        """Its end out here, in the namespace."""
        return f"tap{self.number}"

    @property
    def option(self) -> str:
        """The value of `ip=`: address, gateway, mask, name, interface."""
        return f"{self.ip}::{self.prefix}.1:255.255.255.0:{self.name}:vec0:off"


class MachineNetwork:
    """`with MachineNetwork() as network:`. The namespace has no name: nothing of it is left when its process ends.

    `with_host`: this machine gets an address in it, `host_ip`, where machines reach what listens, and from where they
    are reached. Nothing forwards packets from there.
    """

    bridge = "machines"

    def __init__(self, *, with_host: bool = False) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._with_host = with_host
        self._number = 0  # that of a network of its own; 0 for all that lead nowhere
        self._addresses = 1

    def __enter__(self) -> Self:
        try:
            self._start()
            if self._with_host:
                self._connect()
            self._ip_inside("address", "add", f"{self._prefix}.1/24", "dev", self.bridge)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._number:  # else it would last until the kernel has removed the namespace
            subprocess.run(["ip", "link", "delete", self.host_device], check=False, capture_output=True)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def host_device(self) -> str:
        """The interface of this machine in it, in the namespace of the test."""
        return f"{_DEVICE}{self._number}"

    @property
    def host_ip(self) -> str:
        """The address of this machine in it."""
        assert self._with_host
        return f"{self._prefix}.254"

    def next_address(self, name: str) -> Address:
        """An address that no other machine of this network has."""
        self._addresses += 1
        return Address(name, self._addresses, self._prefix)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in this network."""
        assert self._process is not None
        return ["nsenter", "-t", str(self._process.pid), "-n", *command]

    @property
    def _prefix(self) -> str:
        return f"10.87.{self._number}"

    def _start(self) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", _SCRIPT.format(bridge=self.bridge)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        if (shown := self._process.stdout.readline()) != "up\n":
            raise AssertionError(f"no network for machines: {shown}")

    def _connect(self) -> None:
        """Take the first number that no network of another test has: the name of the interface is the claim."""
        assert self._process is not None
        first = os.getpid() % _NETWORKS
        for number in itertools.islice(itertools.cycle(range(1, _NETWORKS + 1)), first, first + _NETWORKS):
            pair = ["type", "veth", "peer", "name", "host", "netns", str(self._process.pid)]
            done = _ip("link", "add", f"{_DEVICE}{number}", *pair)
            if done.returncode == 0:
                self._number = number
                break
            assert "File exists" in done.stderr, done.stderr
        assert self._number, "this machine has as many networks of machines as there can be"
        self._ip_inside("link", "set", "host", "master", self.bridge, "up")
        for arguments in (
            ("address", "add", f"{self.host_ip}/24", "dev", self.host_device),
            ("link", "set", self.host_device, "up"),
        ):
            done = _ip(*arguments)
            assert done.returncode == 0, done.stderr

    def _ip_inside(self, *arguments: str) -> None:
        subprocess.run(self.inside("ip", *arguments), check=True)


def _ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
