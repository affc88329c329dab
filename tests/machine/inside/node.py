"""The node in the machine: writes its files, starts its services, and reads the state of the agent and the kernel.

Runs as root inside the machine only: it writes /etc and restarts services of the machine. Contains no checks.
"""

import asyncio
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from bus.lock import ServiceLock
from services.bootstrap.core.containerd_config import Machine, render_network
from shared.config.effective import EmbeddedContainerd
from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.host.masquerading import masquerading_failure
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from tools.containerd import answers, import_images
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, PAUSE_IMAGE

T = TypeVar("T")

CGROUPS = Path("/sys/fs/cgroup")
MANIFESTS = Path("/etc/kubernetes/manifests")
RUN_DIR = Path("/run/bulkhead")
NAME = "machine"
WITHIN = 300.0  # seconds; on a machine that has much other work, a pod takes minutes to start
LOOK_EVERY = 0.5  # seconds; a look costs the machine a tenth of one
PORT = 10255
RESERVED = {"cpu": "200m", "memory": "100Mi"}

_CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "staticPodPath": str(MANIFESTS),
    "address": "127.0.0.1",
    "readOnlyPort": PORT,
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "podPidsLimit": 100,
    "systemReserved": RESERVED,
    "failSwapOn": False,
    "memorySwap": {"swapBehavior": "LimitedSwap"},
}
# Without these timeouts, those of the embedded one, containerd ends a pod whose shim does not answer it within
# 5 s of its start, as on a machine with much other work.
_CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
[timeouts]
  "io.containerd.timeout.shim.load" = "30s"
  "io.containerd.timeout.task.state" = "10s"
"""
_SYSTEM_SOCKET, _EMBEDDED_SOCKET = Path("/run/containerd/containerd.sock"), RUN_DIR / "containerd/containerd.sock"


def run(*command: str) -> str:
    """What it prints; AssertionError with its output where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()[-500:] or done.stdout.strip()[-500:]}"
    return done.stdout


def wait(look: Callable[[], T], what: Callable[[], str] | str, seconds: float = WITHIN) -> T:
    """The first truthy thing `look` returns; AssertionError naming `what` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_EVERY)


def swap_on() -> None:
    """A swap file for this boot and all later ones."""
    file = Path("/swapfile")
    run("fallocate", "-l", "256M", str(file))
    file.chmod(0o600)
    run("mkswap", str(file))
    run("swapon", str(file))
    with Path("/etc/fstab").open("a") as fstab:
        fstab.write("/swapfile none swap sw 0 0\n")


def install_with_systemd_driver() -> None:
    """Debian's containerd as a service, and the unit of the package, with the cgroup driver systemd; enabled."""
    machine = Machine(may_lower_oom_score=True, overlay_works=True, has_portmap=True,
                      has_apparmor=False, masquerading_failure=masquerading_failure())  # fmt: skip
    network = EmbeddedContainerd(root="", state="/run/containerd", socket="", config_file="", cni_conf_dir="",
                                 bridge="pods0", pod_cidr="10.88.0.0/24")  # fmt: skip
    for path, text in (
        (Path("/etc/containerd/config.toml"), _CONTAINERD),
        (Path("/etc/cni/net.d/10-pods.conflist"), render_network(network, machine)),
        (Path("/etc/bulkhead/kubelet.args"), f"--config=/etc/bulkhead/kubelet.yaml --hostname-override={NAME}\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    MANIFESTS.mkdir(parents=True)
    _configure("systemd")
    run("systemctl", "enable", "containerd")
    run("systemctl", "restart", "containerd")
    wait(lambda: answers(_SYSTEM_SOCKET), "containerd to answer")
    import_images(str(_SYSTEM_SOCKET), Path("/var/tmp"), (BUSYBOX_CONTENT, PAUSE_CONTENT))
    run("systemctl", "enable", "--now", "bulkhead")


def change_to_cgroupfs_driver() -> None:
    """Take all pods down and go on with the embedded containerd and the cgroup driver cgroupfs."""
    for manifest in MANIFESTS.iterdir():
        manifest.unlink()
    wait(lambda: not runtime_pods_alive(), "the pods to go with their manifests")
    run("systemctl", "stop", "bulkhead")
    run("systemctl", "disable", "--now", "containerd")
    _configure("cgroupfs")
    run("systemctl", "start", "bulkhead")
    wait(lambda: answers(_EMBEDDED_SOCKET), "the embedded containerd to answer")
    import_images(str(_EMBEDDED_SOCKET), Path("/var/tmp"), (BUSYBOX_CONTENT, PAUSE_CONTENT))


def _configure(driver: str) -> None:
    documents: list[Object] = [{**_CONFIG, "cgroupDriver": driver}]
    if driver == "cgroupfs":
        own = {"apiVersion": "bulkhead/v1alpha1", "kind": "BulkheadConfiguration"}
        documents.append({**own, "embeddedContainerd": {"enabled": True}})
    Path("/etc/bulkhead/kubelet.yaml").write_text(yaml.safe_dump_all(documents))


def driver() -> str:
    """The cgroup driver configured now."""
    return str(next(yaml.safe_load_all(Path("/etc/bulkhead/kubelet.yaml").read_text()))["cgroupDriver"])


def put(manifests: dict[str, Object]) -> None:
    """Write these manifests and bring them to the disk: a power cut afterwards loses none."""
    for name, pod in manifests.items():
        scratch = MANIFESTS / f".{name}"
        with scratch.open("w") as file:
            file.write(json.dumps(pod))
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(MANIFESTS / f"{name}.yaml")
    directory = os.open(MANIFESTS, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def take_away(name: str) -> None:
    """Remove the manifest; the runtime has nothing of the pod any more afterwards."""
    (MANIFESTS / f"{name}.yaml").unlink()
    wait(lambda: name not in runtime_pods_alive(), f"pod {name} to go with its manifest")


def pods() -> dict[str, Object]:
    """The pods of the read-only port by manifest name; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/pods", timeout=20) as answer:
            found = json.load(answer).get("items") or []
    except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
        return {}
    return {pod["metadata"]["name"].removesuffix(f"-{NAME}"): pod for pod in found}


def status_of(pod: Object, kind: str = "containerStatuses") -> Object:
    """The status of its first container of that kind; {} while there is none."""
    statuses = (pod.get("status") or {}).get(kind) or [{}]
    status: Object = statuses[0]
    return status


def runtime_pods() -> dict[str, RuntimePod]:
    """What the runtime has, asked behind the agent's back, by manifest name. AssertionError with the last error where
    it does not answer in time: a call fails while containerd is restarted."""
    socket = _SYSTEM_SOCKET if driver() == "systemd" else _EMBEDDED_SOCKET
    errors = [""]

    async def ask() -> list[dict[str, RuntimePod]]:
        runtime = CriRuntime(f"unix://{socket}", request_timeout=60.0)
        try:
            return [{pod.name.removesuffix(f"-{NAME}"): pod for pod in (await runtime.observe()).values()}]
        except RuntimeCallError as error:
            errors.append(str(error))
            return []
        finally:
            await runtime.close()

    (found,) = wait(lambda: asyncio.run(ask()), lambda: f"the runtime to list its pods: {errors[-1]}")
    return found


def runtime_pods_alive() -> set[str]:
    """Names of the pods with a running container or a ready sandbox."""
    return {
        name
        for name, pod in runtime_pods().items()
        if any(box.state == "READY" for box in pod.sandboxes) or any(c.state == "RUNNING" for c in pod.containers)
    }


def service_pid(service: str) -> int:
    """Of one of the seven; 0 while there is none."""
    return ServiceLock(RUN_DIR, service).holder() or 0


def show(unit: str, *properties: str) -> dict[str, str]:
    """Properties of the unit as systemctl prints them."""
    lines = run("systemctl", "show", *(f"--property={name}" for name in properties), unit).splitlines()
    return dict(line.split("=", 1) for line in lines)


def cgroup_of(pid: int) -> str:
    """The one line of /proc/<pid>/cgroup on a unified hierarchy, without its `0::`."""
    (line,) = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    assert line.startswith("0::"), line
    return line.removeprefix("0::")


def explain(name: str) -> str:
    """What `bulkhead explain` prints of the pod."""
    return run("bulkhead", "explain", f"{name}-{NAME}")


def journal() -> str:
    """The agent's log since this boot."""
    return run("journalctl", "--boot", "--unit", "bulkhead", "--output", "cat", "--no-pager")


def containerd_problems() -> str:
    """The warnings and errors at the end of containerd's log."""
    if driver() == "systemd":
        lines = run("journalctl", "--boot", "--unit", "containerd", "--output", "cat", "--no-pager").splitlines()
    else:
        lines = Path("/var/log/bulkhead/containerd.out").read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if "level=info" not in line][-12:])
