"""A row of a table of resizes, and the play that is compared with it."""

from dataclasses import dataclass, field
from typing import Any

from services.podsync.core.pod.gated_fields import POD_LEVEL_RESIZE
from tests.unit.podsync.play import Play, Pod, a_container, a_pod

MI = 1 << 20
Given = tuple[int, int, int]  # shares, quota (0 = none), bytes of memory (0 = no limit)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One transition. `before`, `after`: the amounts by container; `s` is a sidecar, `i` an init container that has
    ended, `pod` stands for the resources of the pod itself. `writes`: what changes in which order; None = a container
    is restarted as well, and the table does not name the order."""

    name: str
    before: dict[str, str]
    after: dict[str, str]
    pod: tuple[int, int | None, int | None]  # shares, quota, bytes of memory of its cgroup
    containers: dict[str, Given]
    writes: list[str] | None = None
    restart: dict[str, str] = field(default_factory=dict)  # container -> resource whose change restarts it
    restarted: tuple[str, ...] = ()
    policy: str = "Always"  # restartPolicy of the pod


def amounts(text: str) -> dict[str, Any]:
    """`100m/64Mi 200m/-`: cpu and memory of requests, then of limits."""
    found: dict[str, Any] = {}
    for kind, pair in zip(("requests", "limits"), text.split(), strict=False):
        cpu, memory = pair.split("/")
        given = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value != "-"}
        found |= {kind: given} if given else {}
    return found


def listed(row: Row, generation: int) -> Pod:
    """The pod as its source lists it in this generation: 2 with the resize, the others without it."""
    texts = row.after if generation == 2 else row.before

    def one(name: str, **fields: Any) -> dict[str, Any]:
        if name in row.restart:
            fields["resizePolicy"] = [{"resourceName": row.restart[name], "restartPolicy": "RestartContainer"}]
        return a_container(name, resources=amounts(texts[name]), **fields)

    init = [one(name, **({"restartPolicy": "Always"} if name == "s" else {})) for name in texts if name in "si"]
    spec: dict[str, Any] = {"resources": amounts(texts["pod"])} if "pod" in texts else {}
    regular = [one(name) for name in texts if name not in ("s", "i", "pod")]
    pod = a_pod(initContainers=init, containers=regular, restartPolicy=row.policy, **spec)
    pod["metadata"]["generation"] = generation
    return pod


def check(row: Row) -> None:
    """Resize the pod and compare with the row. Raises AssertionError."""
    play = Play(source="api").wanting(listed(row, 1))
    if "i" in row.before:
        play.exit("u1", 0, "i")
    play.want(listed(row, 2))
    check_resized(play, row)
    assert [e.split(":")[0] for e in play.events if " Resize" in e] == [
        "Normal ResizeStarted",
        "Normal ResizeCompleted",
    ]


def check_resized(play: Play, row: Row) -> None:
    """Compare cgroups, containers and the status with the row. Raises AssertionError."""
    cgroup = play.cgroups["u1"]
    assert (cgroup.cpu_shares, cgroup.cpu_quota, cgroup.memory_limit) == row.pod
    assert row.writes is None or play.writes == row.writes
    assert sorted(play.running("u1")) == sorted((name, int(name in row.restarted)) for name in row.containers)
    newest = {each.name: play.resources[each.id] for each in play.containers["u1"]}
    keys = ("cpu_shares", "cpu_quota", "memory_limit_in_bytes")
    found = {name: tuple(newest[name].get(key, 0) for key in keys) for name in row.containers}
    assert found == row.containers
    assert condition(play, "PodResizePending") == condition(play, "PodResizeInProgress") == {}
    check_shown(play, row.after)


def check_shown(play: Play, texts: dict[str, str]) -> None:
    """The status shows these amounts as allocated and as given. Raises AssertionError."""
    shown = play.statuses["u1"].status
    for status in (*shown.get("initContainerStatuses", ()), *shown["containerStatuses"]):
        own = amounts(texts[status["name"]])
        assert not own or (status["resources"], status["allocatedResources"]) == (own, own["requests"])
    if POD_LEVEL_RESIZE in play.facts.gates_off:
        assert not {"resources", "allocatedResources"} & shown.keys()
    elif "pod" in texts:
        assert shown["resources"] == amounts(texts["pod"])


def condition(play: Play, kind: str) -> dict[str, Any]:
    """The condition of the pod's status, {} where it has none."""
    return next((c for c in play.statuses["u1"].status["conditions"] if c["type"] == kind), {})
