"""The utility chains of iptables: made in order, again after a flush, and one log line where there is no iptables."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.bootstrap.adapters.iptables import Iptables, IptablesError
from services.bootstrap.controllers.utility_chains import FLUSH_SECONDS, PERIOD_SECONDS, UtilityChains
from services.bootstrap.core.utility_chains import Chain, Rule, utility_rules

HINT, FIREWALL = Chain("mangle", "KUBE-IPTABLES-HINT"), Chain("filter", "KUBE-FIREWALL")
CANARIES = [Chain(table, "KUBE-KUBELET-CANARY") for table in ("mangle", "nat", "filter")]
LOGGER = "services.bootstrap.controllers.utility_chains"


class Tables:
    """The tables of one address family, in memory. `refuses`: what cannot be made."""

    def __init__(self, *, ipv6: bool = False, usable: bool = True) -> None:
        self.ipv6, self.usable, self.protocol = ipv6, usable, "IPv6" if ipv6 else "IPv4"
        self.made: list[Chain | Rule] = []
        self.refuses: Chain | Rule | None = None
        self.unknown: set[Chain] = set()

    async def is_usable(self) -> bool:
        return self.usable

    async def has(self, chain: Chain) -> bool | None:
        return None if chain in self.unknown else chain in self.made

    async def ensure(self, item: Chain | Rule) -> None:
        if item == self.refuses:
            raise IptablesError("iptables -N: exit code 4: no lock")
        if item not in self.made:
            self.made.append(item)


class Stage:
    """`UtilityChains` on these tables, with pauses that a test ends."""

    def __init__(self, *tables: Tables) -> None:
        self.pauses: list[float] = []
        self._paused, self._go_on = asyncio.Event(), asyncio.Event()
        chains = UtilityChains(tables, self._pause)  # type: ignore[arg-type]
        self.task = asyncio.create_task(chains.run())

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._paused.set()
        await self._go_on.wait()
        self._go_on.clear()

    async def until_paused(self) -> float:
        async with asyncio.timeout(60):
            await self._paused.wait()
        self._paused.clear()
        return self.pauses[-1]

    async def turn(self) -> float:
        self._go_on.set()
        return await self.until_paused()

    def close(self) -> None:
        self.task.cancel()


def test_ipv6_needs_no_firewall_rule() -> None:
    assert utility_rules(ipv6=True) == (HINT,)
    assert [item for item in utility_rules(ipv6=False) if isinstance(item, Chain)] == [HINT, FIREWALL]
    jumps = [item for item in utility_rules(ipv6=False) if isinstance(item, Rule) and item.first]
    assert [(jump.chain.name, jump.arguments) for jump in jumps] == [
        ("OUTPUT", ("-j", "KUBE-FIREWALL")),
        ("INPUT", ("-j", "KUBE-FIREWALL")),
    ]


async def test_rules_are_made_before_the_canaries_and_looked_for_once_a_minute() -> None:
    tables = Tables()
    stage = Stage(tables)
    assert await stage.until_paused() == PERIOD_SECONDS
    assert tables.made == [*utility_rules(ipv6=False), *CANARIES]
    assert await stage.turn() == PERIOD_SECONDS
    stage.close()


async def test_after_a_flush_everything_is_made_again() -> None:
    tables = Tables()
    stage = Stage(tables)
    await stage.until_paused()
    tables.made.clear()
    assert await stage.turn() == PERIOD_SECONDS
    assert tables.made == [*utility_rules(ipv6=False), *CANARIES]
    stage.close()


async def test_a_flush_that_goes_on_is_waited_for_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    tables = Tables()
    stage = Stage(tables)
    await stage.until_paused()
    tables.made.remove(CANARIES[0])
    waited = [await stage.turn()]
    while (pause := await stage.turn()) != PERIOD_SECONDS:
        waited.append(pause)
    assert sum(waited) == pytest.approx(FLUSH_SECONDS)
    assert CANARIES[0] in tables.made
    assert "Inconsistent iptables state detected" in caplog.text
    stage.close()


async def test_a_canary_of_which_nothing_is_known_counts_as_there() -> None:
    tables = Tables()
    stage = Stage(tables)
    await stage.until_paused()
    tables.unknown = {CANARIES[0]}
    tables.made.clear()
    assert await stage.turn() == PERIOD_SECONDS
    assert tables.made == []
    stage.close()


async def test_what_fails_is_logged_once_and_tried_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    tables = Tables()
    tables.refuses = HINT
    stage = Stage(tables)
    assert await stage.until_paused() == PERIOD_SECONDS
    assert await stage.turn() == PERIOD_SECONDS
    assert caplog.text.count("Failed to initialize iptables rules; some functionality may be missing.") == 1
    tables.refuses = None
    await stage.turn()
    assert CANARIES[-1] in tables.made
    stage.close()


async def test_without_iptables_there_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    await UtilityChains([Tables(usable=False), Tables(usable=False, ipv6=True)]).run()  # type: ignore[list-item]
    assert [record.message for record in caplog.records] == [
        "No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain"
    ]


async def test_a_family_without_tables_does_not_keep_the_other() -> None:
    tables = Tables(ipv6=True)
    stage = Stage(Tables(usable=False), tables)
    await stage.until_paused()
    assert tables.made == [HINT, *CANARIES]
    stage.close()


def program(directory: Path, *lines: str) -> Sequence[str]:
    """A program in place of iptables, which writes its arguments into a file."""
    path = directory / "iptables"
    path.write_text("\n".join(("#!/bin/sh", f'echo "$@" >> {directory}/calls', *lines)) + "\n")
    path.chmod(0o755)
    return (str(path),)


def calls(directory: Path) -> list[str]:
    return (directory / "calls").read_text().splitlines()


async def test_a_program_that_is_not_installed_is_not_usable(tmp_path: Path) -> None:
    assert not await Iptables((str(tmp_path / "none"),), ipv6=False).is_usable()


@pytest.mark.parametrize(("code", "usable"), [(0, True), (1, False), (3, False), (4, False)])
async def test_a_program_is_usable_where_the_kernel_has_the_table_nat(tmp_path: Path, code: int, usable: bool) -> None:
    assert await Iptables(program(tmp_path, f"exit {code}"), ipv6=False).is_usable() is usable
    assert calls(tmp_path) == ["-w 5 -t nat -S POSTROUTING"]


@pytest.mark.parametrize(("code", "has"), [(0, True), (1, False), (4, None)])
async def test_a_busy_lock_is_no_missing_chain(tmp_path: Path, code: int, has: bool | None) -> None:
    assert await Iptables(program(tmp_path, f"exit {code}"), ipv6=False).has(HINT) is has


async def test_a_rule_that_exists_is_not_made_again(tmp_path: Path) -> None:
    tables = Iptables(program(tmp_path, 'case "$*" in *-C*INPUT*) exit 1;; esac'), ipv6=False)
    for name in ("OUTPUT", "INPUT"):
        await tables.ensure(Rule(Chain("filter", name), ("-j", "KUBE-FIREWALL"), first=True))
    assert calls(tmp_path) == [
        "-w 5 -t filter -C OUTPUT -j KUBE-FIREWALL",
        "-w 5 -t filter -C INPUT -j KUBE-FIREWALL",
        "-w 5 -t filter -I INPUT -j KUBE-FIREWALL",
    ]


async def test_a_failure_is_one_line_with_the_command_and_the_reason(tmp_path: Path) -> None:
    tables = Iptables(program(tmp_path, "echo 'no lock\nsecond line' >&2; exit 4"), ipv6=False)
    with pytest.raises(IptablesError, match=r"iptables -t mangle -N KUBE-IPTABLES-HINT: exit code 4: no lock$"):
        await tables.ensure(HINT)
