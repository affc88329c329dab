"""The utility chains in a network namespace of their own, made by the iptables and ip6tables of this machine."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from services.bootstrap.adapters.iptables import Iptables
from services.bootstrap.controllers.utility_chains import UtilityChains
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MANGLE = ["-N KUBE-IPTABLES-HINT", "-N KUBE-KUBELET-CANARY"]
LOCALNET = (
    '-m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT'
)
FILTER = [
    "-N KUBE-FIREWALL",
    "-N KUBE-KUBELET-CANARY",
    "-A INPUT -j KUBE-FIREWALL",
    "-A OUTPUT -j KUBE-FIREWALL",
    f"-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 {LOCALNET} -j DROP",
]


@pytest.fixture(params=["nft", "legacy"])
def namespace(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The start of a command line for this namespace and this kind of iptables, without the program's name."""
    # Not `ip netns add`: the first one on a machine mounts /run/netns over itself, and the runtime can no longer remove
    # the namespaces that the pods of other tests have there.
    script = "echo made; exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"made\n"
        command = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        if request.param == "legacy":
            tried = subprocess.run([*command, "iptables-legacy", "-t", "nat", "-S"], capture_output=True, check=False)
            if tried.returncode:
                pytest.skip("this kernel has no tables of iptables-legacy")
        yield (*command, request.param)
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def families(namespace: tuple[str, ...]) -> list[Iptables]:
    *command, kind = namespace
    return [Iptables((*command, f"{name}-{kind}"), ipv6=name == "ip6tables") for name in ("iptables", "ip6tables")]


@pytest_asyncio.fixture
async def chains(families: list[Iptables]) -> AsyncIterator[UtilityChains]:
    async def soon(_: float) -> None:
        await asyncio.sleep(0.1)

    kept = UtilityChains(families, soon)
    task = asyncio.create_task(kept.run())
    yield kept
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def rules(program: Iptables, table: str) -> list[str]:
    """The chains and rules of a table, without the kernel's own chains."""
    command = [*program._command, "-w", "5", "-t", table, "-S"]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return [line for line in text.splitlines() if not line.startswith("-P ")]


def flush(program: Iptables) -> None:
    for table in ("mangle", "nat", "filter"):
        for option in ("-F", "-X"):
            subprocess.run([*program._command, "-w", "5", "-t", table, option], check=True)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_chains_and_rules_are_made_once_and_again_after_a_flush(
    families: list[Iptables], chains: UtilityChains
) -> None:
    ipv4, ipv6 = families

    async def complete() -> bool:
        found = [rules(ipv4, "mangle"), rules(ipv4, "nat"), rules(ipv4, "filter"), rules(ipv6, "filter")]
        return found == [MANGLE, MANGLE[1:], FILTER, MANGLE[1:]] and rules(ipv6, "mangle") == MANGLE

    await eventually(complete)
    for program in families:
        flush(program)
    await eventually(complete)
    again = UtilityChains(families)
    for program in families:  # as a restarted process does
        await again._set_up(program)
    assert await complete()


def test_that_masquerading_works_is_found_out_without_a_change(namespace: tuple[str, ...], tmp_path: Path) -> None:
    *enter, kind = namespace
    (tmp_path / "iptables").symlink_to(f"/usr/sbin/iptables-{kind}")
    program = "from shared.host.masquerading import masquerading_failure as failure; print(repr(failure()))"
    path = f"{tmp_path}:{os.environ['PATH']}"
    shown = subprocess.run(
        [*enter, "env", f"PATH={path}", sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "''\n"
    saved = subprocess.run([*enter, f"iptables-{kind}-save"], capture_output=True, text=True, check=True)
    assert "MASQUERADE" not in saved.stdout
