"""Makes chains and rules by iptables and ip6tables of the node, which may be of the kind nft or legacy.

It decides nothing. Each call starts one or two programs, in a thread.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence

from services.bootstrap.core.utility_chains import NAT, Chain, Rule

_WAIT = ("-w", "5")  # seconds that the program waits for the lock of another one
_TIMEOUT_SECONDS = 30.0  # a program that takes longer is killed
_MAX_SHOWN_CHARACTERS = 300  # of its error output
_OK, _NOT_FOUND, _RESOURCE_PROBLEM = 0, 1, 4  # exit codes
_SBIN = ":/usr/sbin:/sbin"


class IptablesError(Exception):
    """A program failed; the text is one line with the command and its first line of error output."""


class Iptables:
    """Runs one of the two programs. `command`: the program, with what precedes it on the command line; `ipv6`: its
    address family."""

    def __init__(self, command: Sequence[str], *, ipv6: bool) -> None:
        self._command, self.ipv6 = tuple(command), ipv6
        self.protocol = "IPv6" if ipv6 else "IPv4"

    async def is_usable(self) -> bool:
        """Return whether the program is installed and the kernel has the tables."""
        path = os.environ.get("PATH", "") + _SBIN
        if shutil.which(self._command[0], path=path) is None:
            return False
        return bool(await self.has(Chain(NAT, "POSTROUTING")))

    async def has(self, chain: Chain) -> bool | None:
        """Return whether the chain exists; None where the lock or the memory for the query is not available."""
        try:
            code, _ = await self._run(chain, "-S", chain.name)
        except IptablesError:
            return None
        return None if code == _RESOURCE_PROBLEM else code == _OK

    async def ensure(self, item: Chain | Rule) -> None:
        """Make the chain or rule where it does not exist. Raises IptablesError."""
        if isinstance(item, Chain):
            await self._must(item, "-N", item.name, allowed=_NOT_FOUND)  # exit code 1 = the chain exists
            return
        code, _ = await self._run(item.chain, "-C", item.chain.name, *item.arguments)
        if code != _OK:
            await self._must(item.chain, "-I" if item.first else "-A", item.chain.name, *item.arguments)

    async def _must(self, chain: Chain, *arguments: str, allowed: int = _OK) -> None:
        code, text = await self._run(chain, *arguments)
        if code not in (_OK, allowed):
            what = " ".join((self._command[-1], "-t", chain.table, *arguments))
            raise IptablesError(f"{what}: exit code {code}: {text}")

    async def _run(self, chain: Chain, *arguments: str) -> tuple[int, str]:
        return await asyncio.to_thread(self._run_program, (*self._command, *_WAIT, "-t", chain.table, *arguments))

    def _run_program(self, command: Sequence[str]) -> tuple[int, str]:
        environment = {**os.environ, "PATH": os.environ.get("PATH", "") + _SBIN}
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env=environment, timeout=_TIMEOUT_SECONDS, check=False, text=True, errors="replace",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IptablesError(f"{' '.join(command)}: {error}") from error
        return done.returncode, done.stderr.strip().partition("\n")[0][:_MAX_SHOWN_CHARACTERS]
