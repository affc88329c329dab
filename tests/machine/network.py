"""A network of its own for machines: a bridge in a network namespace, which leads nowhere and ends with its process."""

import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_PREFIX = "10.87.0"
_SCRIPT = """\
set -e
ip link set lo up
ip link add {bridge} type bridge
ip address add {prefix}.1/24 dev {bridge}
ip link set {bridge} up
echo up
exec sleep infinity
"""


@dataclass(frozen=True)
class Address:
    """The address of one machine in its network, and the names of what it needs for it."""

    name: str
    number: int

    @property
    def ip(self) -> str:
        """Its IPv4 address."""
        return f"{_PREFIX}.{self.number}"

    @property
    def tap(self) -> str:
        """Its end out here, in the namespace."""
        return f"tap{self.number}"

    @property
    def option(self) -> str:
        """The value of `ip=`: address, gateway, mask, name, interface."""
        return f"{self.ip}::{_PREFIX}.1:255.255.255.0:{self.name}:vec0:off"


class MachineNetwork:
    """`with MachineNetwork() as network:`. The namespace has no name: nothing of it is left when its process ends."""

    bridge = "machines"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._addresses = 1

    def __enter__(self) -> Self:
        script = _SCRIPT.format(bridge=self.bridge, prefix=_PREFIX)
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", script]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        if (shown := self._process.stdout.readline()) != "up\n":
            self.__exit__(None, None, None)
            raise AssertionError(f"no network for machines: {shown}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def next_address(self, name: str) -> Address:
        """An address that no other machine of this network has."""
        self._addresses += 1
        return Address(name, self._addresses)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in this network."""
        assert self._process is not None
        return ["nsenter", "-t", str(self._process.pid), "-n", *command]
