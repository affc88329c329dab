"""One soak from beginning to end: cluster, warm-up, rounds of churn, rests, and what was found.

At each rest the pods of the round are checked, then all are deleted and the empty node is compared with the empty node
after the warm-up: every round looks for leaks, and a leak is known by the round it came in.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from bus.messages.streams import SERVICES
from shared.cri.interface import RuntimeCallError
from shared.kube import paths
from shared.kube.interface import ApiError
from shared.model.frozen_copy import replace
from tests.soak.churn import Churn
from tests.soak.findings import check_memory, check_pods, compare, is_empty, memory_by_process
from tests.soak.log_lines import complaints_of
from tests.soak.plan import Round, plan_round, victims_of
from tests.soak.plant import Plant
from tests.soak.sampler import Sampler
from tests.soak.samples import Finding, Sample
from tests.soak.schedule import COLLECTING, WARM_UP, Schedule
from tests.soak.sessions import SessionFailedError, Sessions
from tests.soak.shapes import LASTING, OTHER_IMAGE, Outcome
from tests.soak.trend import growth_of
from tests.support.clusters.cluster import Cluster
from tests.support.runtime.containerd import PrivateContainerd
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT

PODS_WITHIN, GONE_WITHIN, CLEAN_WITHIN = 40.0, 40.0, 40.0  # seconds, at a rest
REPORT_AFTER_SECONDS = 8.0  # a rest that takes longer prints what it waits for
STEADY_LOOKS = 3  # equal samples in a row before the first one counts
CHECKED = (*SERVICES, "supervisord", "planted")  # whose memory must be flat


class Soak:
    """`report` gets each line at once. `plant`: what to leak on purpose, None = nothing."""

    def __init__(
        self, directory: Path, seed: int, schedule: Schedule, report: Callable[[str], None], plant: Plant | None
    ) -> None:
        self._directory, self._seed, self._schedule, self._report, self._plant = (
            directory,
            seed,
            schedule,
            report,
            plant,
        )
        self.samples: list[Sample] = []  # at rest; the first one is after the warm-up
        self.findings: list[Finding] = []
        self._read: dict[Path, int] = {}  # log file -> how far it was checked
        self._began = time.monotonic()
        self._round = 0

    async def run(self) -> bool:
        """Whether nothing was found."""
        folders = [self._directory / name for name in ("c", "p")]
        for folder in folders:
            folder.mkdir()
        self._containerd = PrivateContainerd(folders[0])
        try:
            await asyncio.to_thread(self._containerd.start)
            images = (BUSYBOX_CONTENT, PAUSE_CONTENT, replace(BUSYBOX_CONTENT, name=OTHER_IMAGE))
            await asyncio.to_thread(self._containerd.import_images, images)
            gates = {"feature_gates": {"BoundServiceAccountTokenVolume": True}}
            async with Cluster(folders[1], containerd=self._containerd, plane=gates) as self._cluster:
                await self._soak()
        finally:
            if self._plant is not None:
                self._plant.end()
            await self._containerd.stop()
        return not self.findings

    async def _soak(self) -> None:
        cluster, plane = self._cluster, self._cluster.plane
        self._sampler = Sampler(cluster.agent.home.path, self._containerd, self._pids, cluster.agent.runtime)
        pair = plane.authority.issue("soak", "soak", "system:masters")
        async with Sessions(plane.url, plane.ca_file, pair) as self._talk:
            self._churn = Churn(cluster, self._containerd, self._talk)
            await self._churn.prepare()
            self._report(
                f"seed {self._seed}: warm-up, then {self._schedule.rounds} rounds of {self._schedule.seconds:.0f} s"
            )
            await self._one_round(plan_round(self._seed, 0, WARM_UP, ()), deep=False)
            for number in range(1, self._schedule.rounds + 1):
                victims = victims_of(self._seed, number, self._schedule.rounds)
                late = time.monotonic() - self._began + self._schedule.round_seconds > self._schedule.last_start
                plan = plan_round(self._seed, number, self._schedule.seconds, victims)
                await self._one_round(plan, deep=late or self._schedule.is_deep(number))
                if late:
                    self._report(f"{number} rounds done: rests took longer than planned")
                    break
        self._found(check_memory(self.samples, CHECKED))
        self._report_totals()

    async def _one_round(self, plan: Round, *, deep: bool) -> None:
        self._round = plan.number
        if plan.number and self._plant is not None:
            self._plant.grow(self._cluster.agent.home.path)
        noting = asyncio.create_task(self._note_namespaces())
        try:
            await self._churn.run(plan)
        finally:
            noting.cancel()
        self._found([Finding("operation", text, "done", "failed") for text in self._churn.failed])
        self._churn.failed.clear()
        began = time.monotonic()
        await self._check_round(plan)
        await self._empty()
        checked_at = time.monotonic()
        await self._rest(deep=deep)
        self._found([Finding("log", where, "nothing severe", line) for where, line in self._new_complaints()])
        memory = sum(p.anonymous for name, p in self.samples[-1].processes.items() if name in SERVICES)
        self._report(
            f"round {plan.number}: {len(plan.operations)} operations, {len(plan.expected)} pods at the end; rest"
            f" {checked_at - began:.1f} + {time.monotonic() - checked_at:.1f} s; services hold {memory} KiB"
        )

    async def _check_round(self, plan: Round) -> None:
        await self._whole()

        async def look() -> list[Finding]:
            return check_pods(plan.expected, await self._cluster.items(paths.pods("default")))

        self._found(await self._settle(look, PODS_WITHIN))
        lasting = [n for n, pod in plan.expected.items() if pod.shape in LASTING and pod.outcome is Outcome.READY]
        for name in lasting[:1]:
            try:
                output, status = await self._talk.exec(name, "main", "echo", "fine")
                await self._talk.logs(name, "main")
                if output != "fine\n" or status.get("status") != "Success":
                    self._found([Finding("session", f"exec in {name}", "fine", f"{output!r} {status}")])
            except SessionFailedError as error:
                self._found([Finding("session", name, "answers", str(error))])

    async def _whole(self) -> None:
        """All processes are there and speak, and the node is Ready."""
        try:
            await self._cluster.agent.wait_beats(*SERVICES, seconds=30)
            await self._cluster.wait_node_ready(30)
        except AssertionError as error:
            self._found([Finding("process", "the agent", "complete", str(error))])

    async def _empty(self) -> None:
        """Delete every pod, by turns with and without their own grace, and wait until the API server has none."""

        async def left() -> list[Finding]:
            pods = await self._cluster.items(paths.pods("default"))
            return [Finding("pod", pod["metadata"]["name"], "deleted", "still there") for pod in pods]

        for number, pod in enumerate(await self._cluster.items(paths.pods("default"))):
            await self._cluster.delete_pod(pod["metadata"]["name"], (1, 0, None)[number % 3])
        self._found(await self._settle(left, GONE_WITHIN))

    async def _rest(self, *, deep: bool) -> None:
        """Take the sample of this rest: the first once nothing changes any more, others once nothing is left over."""
        if self.samples:
            sample = self.samples[0]

            async def look() -> list[Finding]:
                nonlocal sample
                sample = await self._sampler.take()
                return compare(self.samples[0], sample, deep=deep)

            limit = CLEAN_WITHIN + (COLLECTING if deep else 0)
            self._found(await self._settle(look, limit, every=1.0))
        else:
            sample = await self._steady()
        self.samples.append(sample)

    async def _steady(self) -> Sample:
        last, equal, deadline = await self._sampler.take(), 0, time.monotonic() + CLEAN_WITHIN
        while equal < STEADY_LOOKS and time.monotonic() < deadline:
            await asyncio.sleep(1)
            sample = await self._sampler.take()
            changed = compare(last, sample, deep=False) or compare(sample, last, deep=False)
            equal = 0 if not is_empty(sample) else 1 if changed else equal + 1
            last = sample
        return last

    async def _settle(
        self, look: Callable[[], Awaitable[list[Finding]]], seconds: float, every: float = 0.3
    ) -> list[Finding]:
        """What `look` finds, as soon as that is nothing, else what it still finds at the end."""
        began, reported = time.monotonic(), False
        deadline = began + seconds
        while True:
            try:
                found = await look()
            except (ApiError, RuntimeCallError) as error:
                found = [Finding("rest", "asking", "answers", str(error))]
            if not found or time.monotonic() > deadline:
                return found
            if not reported and time.monotonic() > began + REPORT_AFTER_SECONDS:
                reported = True
                self._report(
                    f"after {REPORT_AFTER_SECONDS:.0f} s still: "
                    + "; ".join(f"{f.where}: {f.after}" for f in found[:3])
                )
            await asyncio.sleep(every)

    async def _note_namespaces(self) -> None:
        while True:
            await asyncio.to_thread(self._sampler.note_namespaces)
            await asyncio.sleep(0.5)

    def _pids(self) -> dict[str, int]:
        agent = self._cluster.agent
        planted = {"planted": self._plant.pid} if self._plant is not None and self._plant.pid else {}
        services = {name: agent.pid_of(name) for name in SERVICES}
        return {**services, "supervisord": agent.supervisord_pid, **planted}

    def _new_complaints(self) -> list[tuple[str, str]]:
        found = []
        for path in sorted(self._cluster.agent.home.log_dir.glob("*.log")):
            size, begin = path.stat().st_size, self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin if size >= begin else 0)  # a smaller one is a new file
                text = file.read(max(size - begin, 0) if size >= begin else size)
            self._read[path] = size
            found += [(path.name, line) for line in complaints_of(text.decode(errors="replace").splitlines())]
        return found

    def _found(self, findings: list[Finding]) -> None:
        for finding in findings:
            self._report(finding.line(self._seed, self._round))
        self.findings += findings

    def _report_totals(self) -> None:
        self._report(" ".join(f"{kind}={count}" for kind, count in sorted(self._churn.counts.items())))
        if self._churn.cut_short:
            self._report(
                "sessions cut short: " + " ".join(f"{k}={n}" for k, n in sorted(self._churn.cut_short.items()))
            )
        for (name, pid), points in sorted(memory_by_process(self.samples, CHECKED).items()):
            growth = growth_of(points)
            self._report(
                f"memory {name:11} pid {pid:7}: {growth.first:7.0f} -> {growth.last:7.0f} KiB,"
                f" {growth.slope:+8.1f} KiB/min over {growth.points} rests"
            )

    def store(self, file: Path) -> None:
        """Write all samples and findings, for charts."""
        found = [asdict(finding) for finding in self.findings]
        samples = [asdict(sample) for sample in self.samples]
        scratch = file.with_name(f".{file.name}.{os.getpid()}")
        scratch.write_text(json.dumps({"seed": self._seed, "findings": found, "samples": samples}, default=sorted))
        scratch.replace(file)
