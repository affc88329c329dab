"""Pods run, also after kills of services, after a reboot and after a power cut.

pods.md A.6 (the agent restarts), A.7 (the node has booted), 6.7 (user namespaces).
"""

import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

from bus.messages.streams import SERVICES
from services.bootstrap.adapters.containerd_process import find_containerd
from shared.host.kernel_settings import differing_settings, read_kernel_settings
from shared.model.objects import Object
from tests.machine.inside import node, pods

State = dict[str, Any]  # what is remembered over boots

_UNWANTED = re.compile(r"Traceback|corrupt|cannot be read|cannot be decoded", re.IGNORECASE)


def the_agent_is_up_by_its_unit() -> None:
    """systemd is process 1 on cgroup v2 alone, and has received READY."""
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert (node.CGROUPS / "cgroup.controllers").exists()

    def active() -> bool:
        return node.show("bulkhead", "ActiveState") == {"ActiveState": "active"}

    node.wait(active, lambda: f"the unit: {node.journal()[-1500:]}", 600)
    shown = node.show("bulkhead", "NRestarts", "MainPID")
    assert shown["NRestarts"] == "0", "it was started once"
    assert node.cgroup_of(int(shown["MainPID"])).startswith("/system.slice/bulkhead.service")
    assert {name for name in SERVICES if not node.service_pid(name)} == set()


def the_kernel_has_the_settings_of_a_kubelet() -> None:
    """Those that this kernel has; after each boot again."""
    found = read_kernel_settings()
    assert found.get("kernel/panic") == 10 and found.get("vm/overcommit_memory") == 1, found
    assert differing_settings(found) == {}


def start_one_by_one(manifests: dict[str, Object]) -> None:
    """Each once the one before has left Pending: sandboxes made all at once outlast the calls of a slow machine."""

    def begun(name: str) -> bool:
        return bool((node.pods().get(name, {}).get("status") or {}).get("phase", "Pending") != "Pending")

    for name, manifest in manifests.items():
        node.put({name: manifest})
        node.wait(partial(begun, name), f"pod {name} to leave Pending")


def the_steady_pods_run() -> None:
    """Running, with all containers ready and an address."""

    def missing() -> list[str]:
        shown = node.pods()
        return [name for name in pods.STEADY if not _runs(shown.get(name, {}))]

    node.wait(
        lambda: not missing(), lambda: f"{missing()}: {[node.pods().get(n, {}).get('status') for n in missing()]}"
    )


def _runs(pod: Object) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and bool(status.get("podIP")) and bool(node.status_of(pod).get("ready"))


def a_pod_that_is_to_run_once_has_run_once() -> None:
    """policy Never and exit code 0: neither a boot nor a crash of the agent runs it again (pods.md 5.3)."""

    def succeeded() -> bool:
        return ((node.pods().get("once") or {}).get("status") or {}).get("phase") == "Succeeded"

    node.wait(succeeded, lambda: f"once to succeed: {node.pods().get('once', {}).get('status')}")
    assert Path(pods.ONCE, "runs").read_text() == "ran\n"


def what_has_failed_stays_failed(state: State) -> None:
    """The same for the one that was killed for its memory."""
    pod = node.pods()["eater"]
    assert (pod["status"]["phase"], node.status_of(pod)["state"]) == ("Failed", state["failed"]), pod["status"]


def a_user_namespace_is_refused_where_the_runtime_has_none() -> None:
    """Before containerd 2 no runtime reports support: the pod waits, and its story has the reason (pods.md 6.7)."""
    node.put(pods.APART)
    reason = "runtime does not support user namespaces"
    node.wait(lambda: "apart" in node.pods() and reason in node.explain("apart"), f"{reason!r} in the story of apart")
    assert node.pods()["apart"]["status"]["phase"] == "Pending"
    assert not node.runtime_pods().get("apart"), "nothing of it was made"
    (node.MANIFESTS / "apart.yaml").unlink()
    node.wait(lambda: "apart" not in node.pods(), "apart to go with its manifest")


def _instances() -> dict[str, tuple[str, int, int]]:
    """Container, process and attempt of the sandbox of each steady pod."""
    running = node.runtime_pods()
    return {
        name: (running[name].containers[0].id, running[name].containers[0].pid, running[name].sandboxes[0].attempt)
        for name in pods.STEADY
    }


def any_service_may_be_killed() -> None:
    """SIGKILL for each of the seven in turn; the pods go on as the same processes."""
    before = _instances()
    for service in SERVICES:
        old = node.service_pid(service)
        os.kill(old, signal.SIGKILL)
        node.wait(partial(_is_replaced, service, old), f"{service} to come back")
    _same_after_work(before)


def _is_replaced(service: str, old: int) -> bool:
    return node.service_pid(service) not in (0, old)


def the_whole_agent_may_be_killed() -> None:
    """SIGKILL for the unit's main process: systemd restarts the unit; so does an operator's restart."""
    before = _instances()
    os.kill(int(node.show("bulkhead", "MainPID")["MainPID"]), signal.SIGKILL)
    node.wait(lambda: node.show("bulkhead", "NRestarts", "ActiveState") == {"NRestarts": "1", "ActiveState": "active"},
              lambda: f"the unit to be back: {node.show('bulkhead', 'NRestarts', 'ActiveState')}", 600)  # fmt: skip
    _same_after_work(before)
    node.run("systemctl", "restart", "bulkhead")
    _same_after_work(before)
    old = {service: node.service_pid(service) for service in SERVICES}
    node.run("systemctl", "kill", "--kill-who=main", "--signal=USR1", "bulkhead")  # as an upgrade does
    node.run("systemctl", "restart", "bulkhead")
    for service in SERVICES:
        node.wait(partial(_is_replaced, service, old[service]), f"{service} to be replaced")
    _same_after_work(before)


def containerd_may_be_killed() -> None:
    """Its shims keep the pods; systemd, or supervisord for the embedded one, brings it back."""
    before = _instances()
    if node.driver() == "systemd":
        node.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", "containerd")
    else:
        # After a restart of the agent it is no child of its keeper.
        containerd = find_containerd(str(node.RUN_DIR / "containerd/config.toml"))
        assert containerd, "no embedded containerd runs"
        os.kill(containerd, signal.SIGKILL)
    node.wait(lambda: bool(node.runtime_pods()), "containerd to answer again")
    _same_after_work(before)


def _same_after_work(before: dict[str, tuple[str, int, int]]) -> None:
    """The agent works (a new pod starts and goes), and has not touched the others."""
    node.put(pods.SUDDEN)
    node.wait(lambda: _runs(node.pods().get("sudden", {})), "a new pod to run")
    node.take_away("sudden")
    after = _instances()
    assert after == before, f"{before} have become {after}; containerd: {node.containerd_problems()}"
    assert all(Path(f"/proc/{pid}").exists() for _, pid, _ in before.values())


def the_log_has_no_damage() -> None:
    """No record that could not be read, no exception, in the agent's log of this boot."""
    damage = [line for line in node.journal().splitlines() if _UNWANTED.search(line)]
    assert not damage, damage[:5]


# Over boots


def remember(state: State) -> None:
    """What the checks after the next boot compare with."""
    shown, running = node.pods(), node.runtime_pods()
    state["boot_id"] = _boot_id()
    state["uids"] = {name: shown[name]["metadata"]["uid"] for name in pods.STEADY}
    state["restarts"] = {name: node.status_of(shown[name])["restartCount"] for name in pods.STEADY}
    state["attempts"] = {name: running[name].sandboxes[0].attempt for name in pods.STEADY}
    state["ids"] = {name: running[name].containers[0].id for name in pods.STEADY}
    state["failed"] = node.status_of(shown["eater"])["state"]
    state["prepared"] = _lines_in_volume("web", "kubernetes.io~empty-dir/kept/prepared")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _lines_in_volume(name: str, path: str) -> int:
    uid = node.pods()[name]["metadata"]["uid"]
    return len(Path(f"/var/lib/kubelet/pods/{uid}/volumes/{path}").read_text().splitlines())


def the_machine_has_booted(state: State) -> None:
    """Another boot than the one remembered, with the file systems mounted and swap on."""
    assert _boot_id() != state["boot_id"]
    assert len(Path("/proc/swaps").read_text().splitlines()) == 2


def the_pods_from_before_the_boot_run_again(state: State) -> None:
    """The same UIDs in new sandboxes: attempt + 1, restartCount + 1, and lastState has the end of the one before."""
    shown, running = node.pods(), node.runtime_pods()
    assert {name: shown[name]["metadata"]["uid"] for name in pods.STEADY} == state["uids"]
    attempts = {name: running[name].sandboxes[0].attempt for name in pods.STEADY}
    restarts = {name: node.status_of(shown[name])["restartCount"] for name in pods.STEADY}
    assert attempts == {name: count + 1 for name, count in state["attempts"].items()}, (attempts, state["attempts"])
    assert restarts == {name: count + 1 for name, count in state["restarts"].items()}, (restarts, state["restarts"])
    for name in pods.STEADY:
        last = node.status_of(shown[name])["lastState"]["terminated"]
        assert last["containerID"] == f"containerd://{state['ids'][name]}", (name, last)
        assert last["exitCode"] != 0, (name, last)


def init_containers_have_run_again(state: State) -> None:
    """After a boot the init containers run again (pods.md 5.4); files on disk are kept, those in memory are gone."""
    assert _lines_in_volume("web", "kubernetes.io~empty-dir/kept/prepared") == state["prepared"] + 1
    assert _lines_in_volume("web", "kubernetes.io~empty-dir/kept/starts") > 1
    assert _lines_in_volume("web", "kubernetes.io~empty-dir/lost/starts") == 1


def its_story_contains_the_boot(state: State) -> None:
    """`bulkhead explain` has the boot, the new sandbox and why the container was restarted."""
    story = node.explain("web")
    assert "the machine was started again; start " in story, story
    attempt, restarts = state["attempts"]["web"] + 1, state["restarts"]["web"] + 1
    assert f"sandbox of attempt {attempt} runs" in story, story
    (answer,) = (line for line in story.splitlines() if f"  c, attempt {restarts}: " in line)
    assert "the pod's sandbox was gone and a new one was made" in answer, story
    assert f"attempt {restarts - 1} ended with exit code 255 (Unknown)" in answer, story


def what_was_begun_when_the_power_went_is_done() -> None:
    """The pod whose manifest was just written runs."""
    node.wait(lambda: _runs(node.pods().get("sudden", {})), lambda: f"sudden: {node.pods().get('sudden')}")
    node.take_away("sudden")
