"""`make clean`: takes away everything an agent with a home of its own left on this machine, and nothing else.

Order matters: end the agent so that nothing comes back, let containerd take its pods and their networks down, end
containerd and its shims, and only then what no process holds any more: mounts, cgroups, bridge, files.
"""

import asyncio
import os
import sys
from pathlib import Path

from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.config.loader import load_effective
from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.errors import OperatorError
from tools import containerd, leftovers


async def remove_pods(endpoint: str, only: set[str] | None = None) -> set[str]:
    """Stop and remove the pods with these UIDs, or all the runtime has; their UIDs.

    What fails is said, and left for the steps after this one.
    """
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
    """Run the containerd that the agent had, only to take its pods down; their UIDs."""
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
    """Remove the agent with this home. May be repeated; does nothing where there is none.

    Raises FileNotFoundError for a directory that the first run did not make.
    """
    leftovers.check_marker(home)
    leftovers.end_processes(leftovers.agent_processes_of(home))
    try:
        config: EffectiveConfig | None = load_effective(str(home / "run"))
    except (FileNotFoundError, OperatorError):
        config = None  # it never came as far as starting anything
    if config is not None:
        await _clean_machine(home, config)
    leftovers.remove_home(home)


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
    except FileNotFoundError as error:
        sys.exit(
            f"bulkhead: {home} was not made by `make run` ({Path(str(error.filename)).name} is missing): left alone"
        )
    print(f"Removed: the agent, its pods, their mounts, cgroups and network, and {home}.")


if __name__ == "__main__":
    main()
