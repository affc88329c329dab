"""`make clean` removes everything that an agent with its own home left on this machine, and nothing else.

The order matters: the agent ends first, so that nothing comes back; then containerd removes its pods and their
networks; then containerd and its shims end; last come mounts, cgroups, bridge and files, which no process uses any
more."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.config.loader import load_effective
from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.errors import OperatorError
from tools import containerd, leftovers


async def remove_pods(endpoint: str, only: set[str] | None = None) -> set[str]:
    """Stop and remove the pods with these UIDs, or all pods of the runtime. Return their UIDs.

    A failure is printed, and later steps continue."""
    runtime = CriRuntime(endpoint, request_timeout=30.0)
    try:
        pods = {uid: pod for uid, pod in (await runtime.observe()).items() if only is None or uid in only}
        for sandbox in [sandbox for pod in pods.values() for sandbox in pod.sandboxes]:
            try:
                await runtime.stop_pod_sandbox(sandbox.id)
                await runtime.remove_pod_sandbox(sandbox.id)
            except RuntimeCallError as error:
                print(f"sandbox {sandbox.id[:12]}: {error}", file=sys.stderr)
        return set(pods)
    except RuntimeCallError as error:
        print(f"{endpoint}: {error}", file=sys.stderr)
        return set()
    finally:
        await runtime.close()


async def remove_pods_with_own_containerd(embedded: EmbeddedContainerd, log: Path) -> set[str]:
    """Run the agent's containerd to remove its pods. Return their UIDs."""
    if not Path(embedded.config_file).exists() or not Path(embedded.root).exists():
        return set()
    try:
        process = containerd.start(embedded, log)
    except OperatorError as error:
        print(f"{error}; its pods are ended without it", file=sys.stderr)
        return set()
    try:
        return await remove_pods(f"unix://{embedded.socket}")
    finally:
        leftovers.end_processes([process.pid])
        process.wait()


async def clean(home: Path) -> None:
    """Remove the agent with this home. It may be repeated, and does nothing where there is no agent.

    Raises FileNotFoundError for a directory that the first run did not make, and OperatorError when shims do not end:
    the home is then kept, because nothing else on the machine names their owner."""
    leftovers.check_marker(home)
    leftovers.end_agent(home)
    try:
        config = load_effective(str(home / "run"))
    except (OSError, OperatorError):
        config = presumed_config(home)
    await _clean_machine(home, config)
    if left := leftovers.shims_of(home):
        raise OperatorError(
            f"containers are still held by shims that did not end (pids {' '.join(map(str, sorted(left)))}); home kept",
            where=str(home),
            remedy="end them, then make clean again",
        )
    leftovers.remove_home(home)


def presumed_config(home: Path) -> EffectiveConfig:
    """Return the configuration of an agent with this home when its config.json cannot be read: the default layout,
    always with an embedded containerd, and the places outside of the home that kubelet.yaml names, as far as it can be
    read."""
    places = find_places({"BULKHEAD_HOME": str(home)})
    kubelet, own = _documents(home / "kubelet.yaml")
    embedded = own.get("embeddedContainerd")
    given = embedded if isinstance(embedded, dict) else {}
    runtime = f"{places.run_dir}/containerd"
    return EffectiveConfig(
        node_name="",
        root_dir=places.root_dir,
        run_dir=places.run_dir,
        log_dir=places.log_dir,
        cert_dir=places.cert_dir,
        cgroup_root=_text(kubelet, "cgroupRoot", ""),
        embedded_containerd=EmbeddedContainerd(
            root=str(home / _text(given, "root", places.containerd_root)),
            state=str(home / _text(given, "state", places.containerd_state)),
            socket=f"{runtime}/containerd.sock",
            config_file=f"{runtime}/config.toml",
            cni_conf_dir=f"{runtime}/cni",
            bridge=_text(given, "bridge", EmbeddedContainerd.bridge),
            path=_text(given, "path", EmbeddedContainerd.path),
        ),
    )


def _documents(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the KubeletConfiguration and the BulkheadConfiguration; empty where there is none or it cannot be read."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, yaml.YAMLError):
        documents = []
    found = {str(document.get("kind")): document for document in documents if isinstance(document, dict)}
    return found.get("KubeletConfiguration", {}), found.get("BulkheadConfiguration", {})


def _text(document: dict[str, Any], name: str, default: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) and value else default


async def _clean_machine(home: Path, config: EffectiveConfig) -> None:
    pods = Path(config.root_dir) / "pods"
    uids = {path.name for path in pods.iterdir()} if pods.is_dir() else set()
    embedded = config.embedded_containerd
    if embedded is None:
        await remove_pods(config.container_runtime_endpoint, only=uids)
    else:
        uids |= await remove_pods_with_own_containerd(embedded, home / "log" / "containerd.log")
        leftovers.end_containers(Path(embedded.state))
        leftovers.end_processes(leftovers.shims_of(home))
        leftovers.unmount_below(Path(embedded.root), Path(embedded.state))
        if Path(embedded.root).exists():  # otherwise it never ran, and a bridge of this name belongs to another agent
            leftovers.remove_network(embedded.bridge)
    leftovers.unmount_below(Path(config.root_dir))
    leftovers.remove_pod_cgroups(uids, config.cgroup_root)


def main() -> None:
    """Clean the home that BULKHEAD_HOME names."""
    home = Path(os.environ.get("BULKHEAD_HOME") or "/var/lib/bulkhead").absolute()
    if os.geteuid() != 0:
        sys.exit("bulkhead: removing containers, mounts and cgroups needs root (sudo make clean)")
    if not home.exists():
        print(f"Nothing to remove: {home} does not exist.")
        return
    try:
        asyncio.run(clean(home))
    except OperatorError as error:
        sys.exit(f"bulkhead: {error}")
    except FileNotFoundError as error:
        sys.exit(
            f"bulkhead: {home} was not made by `make run` ({Path(str(error.filename)).name} is missing): left alone"
        )
    print(f"Removed: the agent, its pods, their mounts, cgroups and network, and {home}.")


if __name__ == "__main__":
    main()
