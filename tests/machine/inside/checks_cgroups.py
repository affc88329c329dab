"""What the unified hierarchy shows of the node's pods, under either driver (node.md 4.1-4.7, v2)."""

from pathlib import Path

from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from tests.machine.inside import node, pods
from tests.support.installed.chosen_programs import scope_of
from tests.support.waits.deadline import WAIT_SECONDS

MIB = 1 << 20


def weight(milli: int) -> int:
    """milliCPU to cpu.weight by way of shares (node.md 4.2)."""
    shares = min(max(milli * 1024 // 1000, 2), 262144)
    return 1 + (shares - 2) * 9999 // 262142


def memory_total() -> int:
    """Bytes, as the kernel reports it."""
    (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024


def level(*parts: str) -> Path:
    """The cgroup below kubepods that these parts name: `burstable`, `pod<uid>`."""
    names = ["kubepods", *parts]
    if node.driver() == "cgroupfs":
        return node.CGROUPS.joinpath(*names)
    escaped = [name.replace("-", "_") for name in names]
    return node.CGROUPS.joinpath(*("-".join(escaped[: depth + 1]) + ".slice" for depth in range(len(escaped))))


def pod_level(name: str, pod: Object) -> Path:
    """The cgroup of the pod."""
    qos = {"sure": (), "web": ("burstable",), "eater": ("burstable",), "best": ("besteffort",)}[name]
    return level(*qos, f"pod{pod['metadata']['uid']}")


def values(directory: Path, *files: str) -> dict[str, str]:
    """The files' content."""
    return {file: (directory / file).read_text().strip() for file in files}


def container_of(pod: RuntimePod) -> Path:
    """The cgroup of its newest container, from /proc."""
    return node.CGROUPS / node.cgroup_of(pod.containers[0].pid).lstrip("/")


def containers_run_below_their_pods_cgroup() -> None:
    """Check that each container runs in the cgroup that the runtime has made below its pod's: with the driver systemd
    a scope, or with crun a cgroup in the scope."""
    shown, running = node.pods(), node.runtime_pods()
    for name in pods.STEADY:
        container = running[name].containers[0]
        own = scope_of(container.id) if node.driver() == "systemd" else container.id
        assert container_of(running[name]) == pod_level(name, shown[name]) / own, name


def the_pods_cgroups_have_their_values() -> None:
    """Guaranteed, Burstable without limits, and BestEffort."""
    shown = node.pods()
    files = ("cpu.weight", "cpu.max", "memory.max", "pids.max")
    wanted = {
        "sure": (weight(200), "20000 100000", 64 * MIB, 100),
        "web": (weight(250), "max 100000", "max", 100),
        "best": (1, "max 100000", "max", 100),
    }
    found = {name: tuple(values(pod_level(name, shown[name]), *files).values()) for name in wanted}
    assert found == {name: tuple(map(str, texts)) for name, texts in wanted.items()}, found


def the_levels_above_have_theirs() -> None:
    """kubepods: allocatable as enforced; burstable: what its pods request; besteffort: the least."""
    cpus = weight(1000 - 200)
    memory = (memory_total() - 100 * MIB) // 4096 * 4096
    kubepods = {"cpu.weight": str(cpus), "memory.max": str(memory)}

    def right() -> bool:
        return all(
            values(level(*parts), *wanted) == wanted
            for parts, wanted in (
                ((), kubepods),
                (("burstable",), {"cpu.weight": str(weight(250))}),
                (("besteffort",), {"cpu.weight": "1"}),
            )
        )

    def seen() -> str:
        return str(
            [values(level(*parts), "cpu.weight", "memory.max") for parts in ((), ("burstable",), ("besteffort",))]
        )

    within = 1.5 * WAIT_SECONDS  # they are written once a minute
    node.wait(right, lambda: f"{kubepods} and the levels below; found {seen()}", within)
    limit = int(values(level(), "pids.max")["pids.max"])
    kernel = [int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max")]
    assert limit == min(kernel), (limit, kernel)


def containers_have_their_values() -> None:
    """memory.oom.group; and no swap though the machine has some: static pods are critical (node.md 4.7, 4.13)."""
    assert len(Path("/proc/swaps").read_text().splitlines()) == 2
    running = node.runtime_pods()
    for name in pods.STEADY:
        found = values(container_of(running[name]), "memory.oom.group", "memory.swap.max")
        assert found == {"memory.oom.group": "1", "memory.swap.max": "0"}, (name, found)
    found = values(container_of(running["sure"]), "memory.max", "cpu.max")
    assert found == {"memory.max": str(64 * MIB), "cpu.max": "20000 100000"}, found


def a_container_sees_its_limits() -> None:
    """What pod `sure` read of its own cgroup, by its log."""
    uid = node.pods()["sure"]["metadata"]["uid"]
    logs = sorted(Path(f"/var/log/pods/default_sure-{node.NAME}_{uid}/c").glob("*.log"))
    written = [line.split(" ", 3)[3] for line in logs[-1].read_text().splitlines()]
    assert written == [str(64 * MIB), "20000 100000"], written


def systemd_has_the_same_values_and_keeps_them_over_a_reload() -> None:
    """The pod's slice as a unit; `daemon-reload` writes the same values again."""
    slice_ = pod_level("sure", node.pods()["sure"])
    wanted = {
        "CPUWeight": str(weight(200)),
        "CPUQuotaPerSecUSec": "200ms",
        "MemoryMax": str(64 * MIB),
        "TasksMax": "100",
    }
    assert node.show(slice_.name, *wanted) == wanted, node.show(slice_.name, *wanted)
    before = values(slice_, "cpu.weight", "cpu.max", "memory.max", "pids.max")
    node.run("systemctl", "daemon-reload")
    assert values(slice_, *before) == before


def a_container_over_its_memory_limit_is_oom_killed() -> None:
    """memory.max ends the container, and with the policy Never the pod has failed, with the reason that the runtime
    reports: under systemd containerd may lose the kernel's event together with the scope, and report `Error`."""

    def failed() -> Object:
        pod = node.pods().get("eater") or {}
        return pod if (pod.get("status") or {}).get("phase") == "Failed" else {}

    ended = node.status_of(node.wait(failed, lambda: f"eater to fail: {node.pods().get('eater', {}).get('status')}"))
    state = ended["state"]["terminated"]
    reported = node.runtime_pods()["eater"].containers[0]
    assert reported.reason in (("OOMKilled", "Error") if node.driver() == "systemd" else ("OOMKilled",)), reported
    assert (state["reason"], state["exitCode"], ended["restartCount"]) == (reported.reason, 137, 0), state
    [kills] = (line for line in Path("/proc/vmstat").read_text().splitlines() if line.startswith("oom_kill "))
    assert kills != "oom_kill 0"
