"""Reads what the node page shows from the streams, the beats and the process table.

The row of a pod is computed again only when one of its items was replaced."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from bus.interface import Change, Deleted, FollowedStream, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.followed import Followed, Replicated
from bus.messages.podsync import PodStatus
from bus.messages.services import SERVICES
from bus.messages.sources import DesiredPod
from bus.messages.streams import (
    NODE_OBJECT,
    NODE_OBSERVED,
    NODE_SHUTDOWN,
    PODS_ADMITTED,
    PODS_DESIRED,
    PODS_PULLS,
    PODS_STATUS,
    VOLUMES_MOUNTED,
)
from services.frame.launch import Context
from services.report.machine import Requests, counted_requests
from services.report.node import LATE_SECONDS, Report, ReportInputs, report
from services.report.pod_rows import PodFacts, PodRow, is_shown, pod_row
from services.report.processes import ProcessFacts, process_of
from services.server.controllers.node_machine import NodeMachine
from services.server.controllers.pod_streams import PodStreams
from services.server.core.pages.node_history import Latencies, NodeHistory, have_started

log = logging.getLogger(__name__)

MEMORY_SECONDS = 55.0  # between two readings of the memory of processes, the greater part of the cost of a sample

_Items = tuple[Any, ...]  # the item of one pod in each stream about pods


class NodeState:
    """Has the state of the node. `history`: the samples of the last hour. `cpu`: the percent of one CPU that each
    service used in the last sample. `machine`: the rest of what pages show."""

    def __init__(self, context: Context, streams: PodStreams) -> None:
        bus = context.bus
        self._config, self._clock, self._pods = context.config, context.clock, streams
        self._admitted = bus.follow(PODS_ADMITTED)
        self._volumes = bus.follow(VOLUMES_MOUNTED)
        self._pulls = bus.follow(PODS_PULLS)
        self._observed = bus.follow(NODE_OBSERVED)
        self._object, self._shutdown = bus.follow(NODE_OBJECT), bus.follow(NODE_SHUTDOWN)
        self.machine = NodeMachine(context)
        bus.follow(PODS_DESIRED, self._desired_changed)
        bus.follow(PODS_STATUS, self._status_changed)
        bus.on_beat(self._take_beat)
        self.history, self.cpu = NodeHistory(), dict[str, float | None]()
        self._latencies = Latencies()
        self._beats: dict[str, Beat] = {}
        self._processes: dict[str, ProcessFacts] = {service: ProcessFacts(holder=None) for service in SERVICES}
        self._sampled = self._processes  # the processes of the newest sample
        self._memory_read_at = float("-inf")  # CLOCK_MONOTONIC
        self._read_with: dict[str, int] = {}  # service -> process id in its beat when the processes were read
        self._rows: dict[str, tuple[_Items, PodRow, Requests]] = {}
        self._desired_known = False
        self._started = self._clock.monotonic()

    async def sample(self) -> None:
        """Add a sample of now to the history."""
        await self._read_processes()
        self.cpu = {service: _share(self._sampled[service], facts) for service, facts in self._processes.items()}
        self._sampled = self._processes
        values = self._latencies.take(self._clock.monotonic())
        values |= {f"cpu/{service}": share for service, share in self.cpu.items()}
        values["agent.cpu"] = _sum(self.cpu.values())
        values["agent.memory"] = _sum(facts.memory for facts in self._processes.values())
        values |= self.machine.sample()
        self.history.add(self._clock.wall(), values)

    async def report(self) -> Report:
        """Return the state of the node, without its pods."""
        now = self._clock.monotonic()
        beats = dict(self._beats)
        if any(
            self._read_with.get(service) != beat.pid or now - beat.sent_at > LATE_SECONDS
            for service, beat in beats.items()
        ):
            await self._read_processes()
        observed, node = self._observed.state.get("node"), self._object.state.get("node")
        shutdown = self._shutdown.state.get("node")
        return report(
            ReportInputs(
                now=self._clock.monotonic(),
                node=self._config.node_name,
                joins_cluster=self._config.joins_cluster,
                run_dir=self._config.run_dir,
                processes=self._processes,
                beats=beats,
                followed=self._followers(),
                observed=None if observed is None or self._observed.stale else asdict(observed),
                node_object=None if node is None else {"node": node.node},
                shutdown=None if shutdown is None else to_builtins(shutdown),
                pods=(),
            )
        )

    def pods(self) -> dict[str, PodRow]:
        """Return a row for each pod, by UID."""
        desired, status, runtime = self._pods.desired.state, self._pods.status.state, self._pods.runtime.state
        admitted, volumes, known = self._admitted.state, self._volumes.state, not self._pods.status.stale
        pulls = self._pulls.state if not self._pulls.stale else {}
        rows: dict[str, tuple[_Items, PodRow, Requests]] = {}
        for uid in desired.keys() | admitted.keys() | runtime.keys():
            verdict = admitted.get(uid)
            if not is_shown(verdict.state if verdict else None, uid in desired):
                continue
            pull = pulls.get(uid)
            items = (desired.get(uid), status.get(uid), verdict, runtime.get(uid), volumes.get(uid), pull, known)
            before = self._rows.get(uid)
            if before is not None and all(one is other for one, other in zip(before[0], items, strict=True)):
                rows[uid] = before
            else:
                facts = _facts(uid, *items)
                requests = counted_requests(facts.desired.get("pod") or {}, facts.status.get("status") or {})
                rows[uid] = items, pod_row(facts), requests if facts.desired else {}
        self._rows = rows
        return {uid: row for uid, (_, row, _) in rows.items()}

    def requested(self) -> list[Requests]:
        """Return what each of these pods requests."""
        return [requests for _, _, requests in self._rows.values()]

    async def _read_processes(self) -> None:
        """Read the processes in a thread, because a page of memory that is being written may delay the reading."""
        read_with = {service: beat.pid for service, beat in self._beats.items()}
        now = self._clock.monotonic()
        before = self._processes if now - self._memory_read_at < MEMORY_SECONDS else {}
        try:
            self._processes = await asyncio.to_thread(_processes_of, self._config.run_dir, before)
            self._memory_read_at = self._memory_read_at if before else now
        except OSError as error:  # such as too many open files; the last reading stays
            log.debug("the processes cannot be read: %s", error)
        self._read_with = read_with

    def _followers(self) -> dict[str, Followed]:
        """Return what each service follows. Right after the start of this process, a service without a beat counts as
        one that answers."""
        starting = self._clock.monotonic() - self._started < LATE_SECONDS
        return {service: Followed(incarnation="") for service in SERVICES if starting} | {"server": self._followed()}

    def _followed(self) -> Followed:
        """Return the replicas of this process. A replica without an owner is not reported as stale: only a standalone
        node has some."""
        followed: dict[str, FollowedStream[Any]] = {
            "pods.desired": self._pods.desired,
            "pods.status": self._pods.status,
            "runtime.pods": self._pods.runtime,
            "pods.admitted": self._admitted,
            "volumes.mounted": self._volumes,
            "node.observed": self._observed,
            "node.pressure": self.machine.pressure,
            "node.shutdown": self._shutdown,
            "node.resources": self.machine.resources,
            "node.usage": self.machine.usage,
        }
        return Followed(
            incarnation="",
            streams={
                name: Replicated(incarnation="", number=0, items=len(one.state), complete=one.complete, stale=one.stale)
                for name, one in followed.items()
            },
        )

    def _take_beat(self, beat: Beat) -> None:
        self._beats[beat.service] = beat
        self._latencies.note_beat(beat.service, beat.sent_at, self._clock.monotonic())

    def _desired_changed(self, change: Change[DesiredPod]) -> None:
        if isinstance(change, Freshness):
            self._desired_known = self._desired_known or change.complete
        elif isinstance(change, Deleted):
            self._latencies.pod_removed(change.key)
        elif self._desired_known and change.key not in self._pods.status.state:
            self._latencies.pod_arrived(change.key, self._clock.monotonic())

    def _status_changed(self, change: Change[PodStatus]) -> None:
        if not isinstance(change, Put) or (desired := self._pods.desired.state.get(change.key)) is None:
            return
        if have_started(desired.pod.get("spec") or {}, change.value.status):
            self._latencies.pod_started(desired.uid, self._clock.monotonic())


def _processes_of(run_dir: str, before: Mapping[str, ProcessFacts]) -> dict[str, ProcessFacts]:
    return {service: process_of(run_dir, service, before.get(service)) for service in SERVICES}


def _share(before: ProcessFacts, after: ProcessFacts) -> float | None:
    """Return percent of one CPU between two readings of a process; None = it is another one, or cannot be read."""
    if before.holder is None or after.holder is None or before.holder.pid != after.holder.pid:
        return None
    if before.cpu is None or after.cpu is None or before.age is None or after.age is None or after.age <= before.age:
        return None
    return round(100 * (after.cpu - before.cpu) / (after.age - before.age), 1)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _facts(
    uid: str, desired: Any, status: Any, admitted: Any, runtime: Any, volumes: Any, pull: Any, known: bool
) -> PodFacts:
    """Return the items of one pod as JSON; containers of the runtime by name and state alone."""
    containers = [{"name": one.name, "state": one.state} for one in runtime.containers] if runtime else []
    mounted = (
        {name: {"state": one.state, "error": one.error} for name, one in volumes.volumes.items()} if volumes else {}
    )
    return PodFacts(
        uid=uid,
        desired=asdict(desired) if desired else {},
        status=asdict(status) if status else {},
        admitted=asdict(admitted) if admitted else {},
        runtime={"name": runtime.name, "namespace": runtime.namespace, "containers": containers} if runtime else {},
        volumes={"volumes": mounted},
        pull=asdict(pull) if pull else {},
        status_known=known,
    )
