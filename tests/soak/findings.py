"""Compares the node with its earlier state, and pods with their expected state. Pure: samples in, findings out."""

import re
from collections.abc import Iterable, Mapping, Sequence

from shared.model.objects import Object
from tests.soak.plan import Expected
from tests.soak.samples import Finding, ProcessSample, Sample
from tests.soak.shapes import Outcome
from tests.soak.trend import Point, growth_of

# Pools that are filled when first needed, whenever that is: asyncio's default executor has cpu + 4 threads, gRPC has
# its own. They may grow by this much over the first look, and no further.
THREADS_TO_SPARE = 8
# Where something of a pod stays for a minute after its end, and how it is named then.
COLLECTED = ("CRI sandboxes", "CRI containers", "containerd containers", "containerd snapshots", "files in the home")
_NAMED_AFTER_A_POD = re.compile(r"(?<!sha256:)\b[0-9a-f]{64}\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STORE_TO_SPARE = 256 * 1024  # bytes below the home, logs and stories left out
SHOWN = 3  # names in a finding
# Descriptors that a pool may have opened since, because it had not been used as much before.
TO_SPARE = {"eventfd": 4, "eventpoll": 4, "socket:tcp": 8}
OF_PODS_ALONE = ("pod directories", "shims", "containerd tasks", "veths", "NAT rules", "network namespaces")
ONLY_DEEP = {"socket:tcp"}  # connections to the API server are kept for a while after a burst of writes


def is_empty(sample: Sample) -> bool:
    """Whether no pod is there, nor one that still ends: what all later samples may be compared with."""
    return not any(sample.things.get(place) for place in OF_PODS_ALONE)


def compare(before: Sample, after: Sample, *, deep: bool) -> list[Finding]:
    """What is there now and was not, and what is gone. Processes are compared by name, also after a restart.

    `before` is the empty node after the warm-up. `deep`: also what the agent keeps of a gone pod for a minute is gone.
    """
    found = []
    for place in sorted(before.things.keys() | after.things.keys()):
        old, new = before.things.get(place, frozenset()), after.things.get(place, frozenset())
        if place in COLLECTED:
            old, new = _of_no_pod(old), new if deep else _of_no_pod(new)
        if new - old:
            found.append(Finding("leak", place, str(len(old)), f"{len(new)}, new: {_some(new - old)}"))
        if old - new:
            found.append(Finding("lost", place, str(len(old)), f"{len(new)}, gone: {_some(old - new)}"))
    for place in sorted(before.amounts.keys() & after.amounts.keys()):
        if after.amounts[place] > before.amounts[place] + STORE_TO_SPARE:
            found.append(Finding("leak", place, f"{before.amounts[place]} B", f"{after.amounts[place]} B"))
    for name in sorted(before.processes.keys() | after.processes.keys()):
        found += _compare_process(name, before.processes.get(name), after.processes.get(name), deep)
    return found


def _of_no_pod(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if not _NAMED_AFTER_A_POD.search(name))


def _compare_process(name: str, before: ProcessSample | None, after: ProcessSample | None, deep: bool) -> list[Finding]:
    if before is None or after is None:
        state = ("absent", "present") if before is None else ("present", "absent")
        return [Finding("process", name, *state)]
    where = f"{name} (pid {after.pid})"
    found = [
        Finding("leak", f"{where} descriptors {kind}", str(before.handles.get(kind, 0)), str(count))
        for kind, count in sorted(after.handles.items())
        if (deep or kind not in ONLY_DEEP) and count > before.handles.get(kind, 0) + TO_SPARE.get(kind, 0)
    ]
    for what, old, new in (
        ("threads", before.threads + THREADS_TO_SPARE, after.threads),
        ("inotify watches", before.watches, after.watches),
        ("children", before.children, after.children),
        ("zombies", before.zombies, after.zombies),
    ):
        if new > old:
            found.append(Finding("leak", f"{where} {what}", str(old), str(new)))
    return found


def check_memory(samples: Sequence[Sample], only: Iterable[str] | None = None) -> list[Finding]:
    """One finding for each process whose memory was not flat. `samples`: at rest, oldest first."""
    found = []
    for (name, pid), points in memory_by_process(samples, only).items():
        growth = growth_of(points)
        if growth.leaks:
            after = f"{growth.last:.0f} KiB, {growth.slope:+.1f} KiB/min"
            found.append(Finding("memory", f"{name} (pid {pid})", f"{growth.first:.0f} KiB", after))
    return found


def memory_by_process(
    samples: Sequence[Sample], only: Iterable[str] | None = None
) -> dict[tuple[str, int], list[Point]]:
    """Name and pid -> its memory over time. The first sample of a restarted process is its warm-up."""
    wanted = None if only is None else set(only)
    found: dict[tuple[str, int], list[Point]] = {}
    for sample in samples:
        for name, process in sample.processes.items():
            if wanted is None or name in wanted:
                point = Point((sample.at - samples[0].at) / 60, float(process.anonymous))
                found.setdefault((name, process.pid), []).append(point)
    first = {name: process.pid for name, process in samples[0].processes.items()} if samples else {}
    return {key: points if first.get(key[0]) == key[1] else points[1:] or points for key, points in found.items()}


def check_pods(expected: Mapping[str, Expected], seen: Iterable[Object]) -> list[Finding]:
    """Pods that are missing, too many, in another state than they should be, or have an unexpected restart."""
    by_name = {str(pod["metadata"]["name"]): pod for pod in seen}
    found = [
        Finding("pod", name, "deleted", _state(by_name[name])) for name in sorted(by_name.keys() - expected.keys())
    ]
    for name, pod in sorted(expected.items()):
        what = f"{name} ({pod.shape})"
        if name not in by_name:
            found.append(Finding("pod", what, pod.outcome, "gone"))
        else:
            found += _check_pod(what, pod, by_name[name])
    return found


def _check_pod(what: str, expected: Expected, pod: Object) -> list[Finding]:
    status = pod.get("status") or {}
    phase = status.get("phase")
    containers = status.get("containerStatuses") or ()
    match expected.outcome:
        case Outcome.READY:
            good = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        case Outcome.CRASHING:
            good = phase == "Running" and any(c.get("restartCount", 0) > 0 for c in containers)
        case _:
            good = phase == expected.outcome
    found = [] if good else [Finding("pod", what, expected.outcome, _state(pod))]
    if expected.outcome is not Outcome.CRASHING:
        for container in containers:
            allowed = 1 if container["name"] in expected.hurt else 0
            if container.get("restartCount", 0) > allowed:
                counts = (f"{allowed} restarts allowed", f"{container['restartCount']}: {_last_end(container)}")
                found.append(Finding("pod", f"{what} container {container['name']}", *counts))
    return found


def _state(pod: Object) -> str:
    status = pod.get("status") or {}
    waiting = [
        str(reason)
        for container in status.get("containerStatuses") or ()
        if (reason := ((container.get("state") or {}).get("waiting") or {}).get("reason"))
    ]
    ending = ["ending"] if "deletionTimestamp" in pod["metadata"] else []
    words = [str(status.get("phase") or "no phase"), str(status.get("reason") or ""), *waiting, *ending]
    return " ".join(word for word in words if word)


def _last_end(container: Object) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return f"{ended.get('reason', '?')} {ended.get('exitCode', '?')}"


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:SHOWN]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
