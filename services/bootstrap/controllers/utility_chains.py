"""Keeps the utility chains of iptables for IPv4 and IPv6 (makeIPTablesUtilChains), also after a flush of the rules.

The kernel reports no flush, so the canary of the table mangle is searched once a minute. A restart finds existing
chains and adds missing ones; nothing is removed at the end, as with the kubelet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from services.bootstrap.adapters.iptables import Iptables, IptablesError
from services.bootstrap.core.utility_chains import CANARY, CANARY_TABLES, Chain, utility_rules
from shared.log.klog import structured

log = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
FLUSH_POLL_SECONDS, FLUSH_SECONDS = 0.1, 5.0
_CANARIES = tuple(Chain(table, CANARY) for table in CANARY_TABLES)


class UtilityChains:
    """Keeps the chains. `programs`: one for each address family; `sleep` takes seconds."""

    def __init__(
        self,
        programs: Sequence[Iptables] = (Iptables(("iptables",), ipv6=False), Iptables(("ip6tables",), ipv6=True)),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._programs, self._sleep = programs, sleep

    async def run(self) -> None:
        """Keep the chains until cancelled; return at once where no program can be used."""
        usable = [program for program in self._programs if await program.is_usable()]
        if not usable:
            log.info("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain")
            return
        async with asyncio.TaskGroup() as families:
            for program in usable:
                families.create_task(self._keep(program), name=program.protocol)

    async def _keep(self, program: Iptables) -> None:
        while True:
            await self._set_up(program)
            await self._flushed(program)
            log.info("%s", structured("The rules of iptables were flushed", protocol=program.protocol))

    async def _set_up(self, program: Iptables) -> None:
        """Make the rules, then the canaries. A failure is logged once, and tried again each minute."""
        logged = ""
        while True:
            try:
                for item in (*utility_rules(ipv6=program.ipv6), *_CANARIES):
                    await program.ensure(item)
            except IptablesError as error:
                if logged != str(error):
                    text = "Failed to initialize iptables rules; some functionality may be missing."
                    log.warning("%s", structured(text, protocol=program.protocol, err=str(error)))
                logged = str(error)
                await self._sleep(PERIOD_SECONDS)
            else:
                log.info("%s", structured("Initialized iptables rules.", protocol=program.protocol))
                return

    async def _flushed(self, program: Iptables) -> None:
        """Wait until the first canary is gone, then up to 5 s until the others are: a flush takes its time, and rules
        that are made during one are lost."""
        first, *others = _CANARIES
        while await program.has(first) is not False:
            await self._sleep(PERIOD_SECONDS)
        for _ in range(int(FLUSH_SECONDS / FLUSH_POLL_SECONDS)):
            if not any([await program.has(canary) is not False for canary in others]):
                return
            await self._sleep(FLUSH_POLL_SECONDS)
        log.warning("%s", structured("Inconsistent iptables state detected", protocol=program.protocol))
