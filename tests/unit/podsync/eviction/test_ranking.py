"""In which order pods are evicted: tables written by hand from node.md 5.5."""

from typing import Any

import pytest

from bus.messages.usage import CgroupUsage, ContainerUsage, FilesystemUsage, PodUsage, VolumeUsage
from services.podsync.core.eviction.ranking import Candidate, rank
from services.podsync.core.eviction.signals import Layout

MI = 1 << 20


def usage(**amounts: int) -> PodUsage:
    """A pod with one container and one ephemeral volume. Amounts in MiB: memory, rootfs, logs, volume, claim; and
    counts: inodes (of the root filesystem), log_inodes, processes."""

    def files(name: str, inodes: str = "") -> FilesystemUsage:
        return FilesystemUsage(time=0.0, used=amounts.get(name, 0) * MI, inodes_used=amounts.get(inodes, 0))

    container = ContainerUsage(
        id="c", name="c", created_at=0, rootfs=files("rootfs", "inodes"), logs=files("logs", "log_inodes")
    )
    volumes = (
        VolumeUsage(name="own", filesystem=files("volume"), ephemeral=True),
        VolumeUsage(name="data", filesystem=files("claim"), claim="data"),
    )
    return PodUsage(
        uid="",
        name="",
        namespace="",
        created_at=0,
        read_at=0.0,
        cgroup=CgroupUsage(time=0.0, memory_working_set=amounts.get("memory", 0) * MI),
        processes=amounts.get("processes", 0),
        containers=(container,),
        volumes=volumes,
    )


def pod(priority: int | None = None, overhead: str = "", for_pod: str = "", **requests: str) -> dict[str, Any]:
    """A pod with one container that requests these."""
    named = {name.replace("_", "-"): amount for name, amount in requests.items()}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": named}}]}
    spec |= {} if priority is None else {"priority": priority}
    spec |= {"overhead": {"memory": overhead}} if overhead else {}
    spec |= {"resources": {"requests": {"memory": for_pod}}} if for_pod else {}
    return {"spec": spec}


UNKNOWN: dict[str, int] = {}
RANKINGS: list[tuple[str, str, Layout, list[tuple[str, dict[str, Any], dict[str, int]]]]] = [
    # Each row: what it shows, the signal, the layout, the pods in the order of eviction.
    ("what exceeds its request goes before what does not, whatever the priority", "memory.available", Layout.SINGLE, [
        ("a", pod(1000, memory="100Mi"), {"memory": 101}),
        ("b", pod(0, memory="100Mi"), {"memory": 99}),
    ]),
    ("a usage equal to the request does not exceed it", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="100Mi"), {"memory": 101}),
        ("a", pod(memory="200Mi"), {"memory": 200}),
    ]),
    ("among those that exceed, the lower priority goes first", "memory.available", Layout.SINGLE, [
        ("b", pod(1), {"memory": 10}),
        ("a", pod(2), {"memory": 500}),
    ]),
    ("no priority is priority 0", "memory.available", Layout.SINGLE, [
        ("c", pod(-1), {"memory": 1}),
        ("a", pod(None), {"memory": 9}),
        ("b", pod(1), {"memory": 99}),
    ]),
    ("with equal priorities the largest excess goes first", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="10Mi"), {"memory": 300}),
        ("a", pod(memory="200Mi"), {"memory": 400}),
    ]),
    ("of those that do not exceed, the one nearest to its request goes first", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="100Mi"), {"memory": 90}),
        ("a", pod(memory="500Mi"), {"memory": 400}),
    ]),
    ("a pod without a reading goes before all others", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="1Gi"), UNKNOWN),
        ("a", pod(), {"memory": 900}),
    ]),
    ("a pod without a reading goes before all others, whatever the priority", "memory.available", Layout.SINGLE, [
        ("b", pod(5), UNKNOWN),
        ("a", pod(0), {"memory": 900}),
    ]),
    ("of those without a reading the lower priority goes first", "memory.available", Layout.SINGLE, [
        ("b", pod(0), UNKNOWN),
        ("a", pod(5), UNKNOWN),
    ]),
    ("overhead is part of the request", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="100Mi"), {"memory": 101}),
        ("a", pod(memory="100Mi", overhead="50Mi"), {"memory": 120}),
    ]),
    ("a request for the pod itself replaces those of its containers", "memory.available", Layout.SINGLE, [
        ("b", pod(memory="100Mi"), {"memory": 150}),
        ("a", pod(memory="100Mi", for_pod="200Mi"), {"memory": 190}),
    ]),
    ("allocatable memory ranks as memory does", "allocatableMemory.available", Layout.SINGLE, [
        ("b", pod(memory="10Mi"), {"memory": 30}),
        ("a", pod(memory="20Mi"), {"memory": 30}),
    ]),
    ("one filesystem: writable layer, logs and volumes count together", "nodefs.available", Layout.SINGLE, [
        ("b", pod(), {"rootfs": 1, "logs": 2, "volume": 4}),
        ("a", pod(), {"rootfs": 6}),
    ]),
    ("the files of a claim do not count", "nodefs.available", Layout.SINGLE, [
        ("b", pod(), {"rootfs": 1}),
        ("a", pod(), {"claim": 900}),
    ]),
    ("a request for ephemeral storage protects", "nodefs.available", Layout.SINGLE, [
        ("b", pod(), {"rootfs": 1}),
        ("a", pod(ephemeral_storage="1Gi"), {"rootfs": 900}),
    ]),
    ("images elsewhere: writable layers do not count on nodefs", "nodefs.available", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"logs": 2}),
        ("a", pod(), {"rootfs": 900}),
    ]),
    ("images elsewhere: only writable layers count on imagefs", "imagefs.available", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"rootfs": 2}),
        ("a", pod(), {"logs": 900, "volume": 900}),
    ]),
    ("split: no files of pods are on imagefs, the UID decides", "imagefs.available", Layout.SPLIT, [
        ("a", pod(), {"rootfs": 2}),
        ("b", pod(), {"rootfs": 900}),
    ]),
    ("split: writable layers and logs count on containerfs", "containerfs.available", Layout.SPLIT, [
        ("b", pod(), {"rootfs": 2, "logs": 3}),
        ("a", pod(), {"rootfs": 4}),
    ]),
    ("inodes: any use exceeds, then priority, then the number", "nodefs.inodesFree", Layout.SINGLE, [
        ("c", pod(0), {"inodes": 1}),
        ("b", pod(1), {"inodes": 70, "log_inodes": 2}),
        ("a", pod(1), {"inodes": 71}),
        ("d", pod(-5), {}),
    ]),
    ("inodes: a request in bytes is subtracted as a number", "nodefs.inodesFree", Layout.SINGLE, [
        ("b", pod(), {"inodes": 10}),
        ("a", pod(ephemeral_storage="100"), {"inodes": 50}),
    ]),
    ("disk: what exceeds its request goes before what does not, whatever the priority", "nodefs.available",
     Layout.SINGLE, [
        ("a", pod(1000, ephemeral_storage="100Mi"), {"rootfs": 101}),
        ("b", pod(0, ephemeral_storage="100Mi"), {"rootfs": 99}),
    ]),
    ("disk: among those that exceed, the lower priority goes first", "nodefs.available", Layout.SINGLE, [
        ("b", pod(1), {"rootfs": 1}),
        ("a", pod(2), {"rootfs": 900}),
    ]),
    ("disk: a usage equal to the request does not exceed it", "nodefs.available", Layout.SINGLE, [
        ("b", pod(ephemeral_storage="10Mi"), {"rootfs": 11}),
        ("a", pod(ephemeral_storage="500Mi"), {"rootfs": 500}),
    ]),
    ("disk: the excess decides, not the usage", "nodefs.available", Layout.SINGLE, [
        ("b", pod(ephemeral_storage="10Mi"), {"rootfs": 300}),
        ("a", pod(ephemeral_storage="200Mi"), {"rootfs": 400}),
    ]),
    ("disk: of those that do not exceed, the one nearest to its request goes first", "nodefs.available",
     Layout.SINGLE, [
        ("b", pod(ephemeral_storage="100Mi"), {"rootfs": 90}),
        ("a", pod(ephemeral_storage="500Mi"), {"rootfs": 400}),
    ]),
    ("disk: a pod without a reading goes before all others", "nodefs.available", Layout.SINGLE, [
        ("b", pod(ephemeral_storage="1Gi"), UNKNOWN),
        ("a", pod(), {"rootfs": 900}),
    ]),
    ("disk: a pod without a reading goes before all others, whatever the priority", "nodefs.available",
     Layout.SINGLE, [
        ("b", pod(5), UNKNOWN),
        ("a", pod(0), {"rootfs": 900}),
    ]),
    ("one filesystem: imagefs ranks as nodefs does", "imagefs.available", Layout.SINGLE, [
        ("b", pod(), {"rootfs": 1, "logs": 2, "volume": 4}),
        ("a", pod(), {"rootfs": 6}),
    ]),
    ("images elsewhere: logs and volumes count together on nodefs", "nodefs.available", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"logs": 1, "volume": 5}),
        ("a", pod(), {"logs": 5}),
    ]),
    ("images elsewhere: containerfs ranks as imagefs does", "containerfs.available", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"rootfs": 2}),
        ("a", pod(), {"logs": 900}),
    ]),
    ("split: writable layers and logs count on nodefs", "nodefs.available", Layout.SPLIT, [
        ("b", pod(), {"rootfs": 2, "logs": 3}),
        ("a", pod(), {"rootfs": 4}),
    ]),
    ("images elsewhere: inodes of writable layers count on imagefs", "imagefs.inodesFree", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"inodes": 3}),
        ("a", pod(), {"log_inodes": 900}),
    ]),
    ("images elsewhere: inodes of logs count on nodefs", "nodefs.inodesFree", Layout.DEDICATED_IMAGES, [
        ("b", pod(), {"log_inodes": 3}),
        ("a", pod(), {"inodes": 900}),
    ]),
    ("split: inodes of writable layers and logs count on containerfs", "containerfs.inodesFree", Layout.SPLIT, [
        ("b", pod(), {"inodes": 1, "log_inodes": 3}),
        ("a", pod(), {"inodes": 3}),
    ]),
    ("inodes: a pod without a reading goes first among equals", "nodefs.inodesFree", Layout.SINGLE, [
        ("b", pod(), UNKNOWN),
        ("a", pod(), {"inodes": 900}),
    ]),
    ("inodes: a pod without a reading goes before all others, whatever the priority", "nodefs.inodesFree",
     Layout.SINGLE, [
        ("b", pod(5), UNKNOWN),
        ("a", pod(0), {"inodes": 900}),
    ]),
    ("processes: priority first, then the number of processes", "pid.available", Layout.SINGLE, [
        ("c", pod(0), {"processes": 3}),
        ("b", pod(1), {"processes": 500}),
        ("a", pod(1), {"processes": 2}),
    ]),
    ("processes: a pod without a reading goes first among equals", "pid.available", Layout.SINGLE, [
        ("b", pod(0), UNKNOWN),
        ("a", pod(0), {"processes": 500}),
    ]),
]  # fmt: skip


def test_the_order_of_eviction(subtests: pytest.Subtests) -> None:
    for name, signal, layout, order in RANKINGS:
        with subtests.test(name):
            candidates = [
                Candidate(uid=uid, pod=spec, usage=None if amounts is UNKNOWN else usage(**amounts))
                for uid, spec, amounts in order
            ]
            expected = [uid for uid, _, _ in order]
            assert [one.uid for one in rank(signal, candidates, layout)] == expected
            assert [one.uid for one in rank(signal, reversed(candidates), layout)] == expected
