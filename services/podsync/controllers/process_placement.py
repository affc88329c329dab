"""Keeps processes in the cgroups that kubeletCgroups, systemCgroups and --runtime-cgroups name (node.md 4.8).
Moves each minute the agent's processes and supervisord, whose restarts inherit its cgroup; the embedded containerd, but
no runtime that others run; the processes of the root cgroup. Decides no name.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from services.frame.generation import supervisor_generation, supervisor_process, supervisord_runs
from services.podsync.adapters.cgroups.process_placement import children_of, place, place_root_processes
from services.podsync.core.cgroups.process_cgroup import placement_name
from shared.config.effective import EffectiveConfig
from shared.host.cgroup_layout import Hierarchies
from shared.process.identity import is_running

log = logging.getLogger(__name__)

LOOP_SECONDS = 60.0


class ProcessPlacement:
    """Moves processes into cgroups. `trouble` reports a trouble by name, None = there is none any more."""

    def __init__(
        self, config: EffectiveConfig, hierarchies: Hierarchies, trouble: Callable[[str, str | None], None]
    ) -> None:
        self._config, self._hierarchies, self._trouble = config, hierarchies, trouble
        self._own = placement_name(config.kubelet_cgroups)
        runtime = placement_name(config.runtime_cgroups) or self._own  # for the embedded containerd
        self._runtime = runtime if config.embedded_containerd else ""
        self._system = placement_name(config.system_cgroups)

    async def run(self) -> None:
        """Run until cancelled; return at once where nothing is configured."""
        if not (self._own or self._runtime or self._system):
            return
        while True:
            await self.place_all()
            await asyncio.sleep(LOOP_SECONDS)

    async def place_all(self) -> None:
        """Move the processes that are not in their cgroups. Never raises: a failure is logged and tried again in a
        minute."""
        problem = await asyncio.to_thread(self._place_all)
        if problem:
            log.warning("%s; it is tried again in a minute", problem)
        self._trouble("placement", problem)

    def _place_all(self) -> str | None:
        problem: str | None = None
        for name, processes in ((self._own, self._agent_processes), (self._runtime, self._runtime_processes)):
            for process in processes() if name else ():
                try:
                    if place(self._hierarchies, name, process):
                        log.info("moved process %s into cgroup %s", process, name)
                except OSError as error:
                    problem = str(error)
        if self._system:
            try:
                if moved := place_root_processes(self._hierarchies, self._system):
                    log.info("moved %s processes from the root cgroup into cgroup %s", moved, self._system)
            except OSError as error:
                problem = str(error)
        return problem

    def _agent_processes(self) -> Iterator[int]:
        """Yield the supervisord that started us, if it runs, and then the processes that it has started: a process that
        it starts after it was moved inherits the cgroup."""
        generation = supervisor_generation()
        if not (generation and supervisord_runs(generation)):
            return
        yield supervisor_process()
        yield from children_of(supervisor_process())

    def _runtime_processes(self) -> Iterator[int]:
        """Yield the embedded containerd, by the identity that its keeper wrote beside its configuration."""
        embedded = self._config.embedded_containerd
        try:
            identity = Path(embedded.config_file).with_name("process").read_text().strip() if embedded else ""
        except (OSError, ValueError):
            return
        if is_running(identity):
            yield int(identity.split("/")[1])
