"""What pods leave on a machine when their teardown is incomplete: counted, so that a test can compare.

Only what belongs to one private containerd and one agent is looked at; others use the machine at the same time.
"""

from contextlib import suppress
from pathlib import Path

from services.volume.adapters.mounts import mount_table
from shared.cri.client import CriRuntime
from shared.host.address_translation import address_translation
from tests.support.agents.world import World
from tools.leftovers import cgroups_of, directories_below, shims_of

NETNS = Path("/run/netns")


async def leftovers(
    world: World, containerd_directory: Path, bridge: str, namespaces: set[str]
) -> dict[str, list[str]]:
    """Kind -> what there is of it, sorted; kinds with nothing are absent. `namespaces`: names of the
    network namespaces that pods were seen with."""
    home = world.home.path
    places = (str(containerd_directory / "state"), str(home / "kubelet" / "pods"), str(home / "state"))
    found = {
        "runtime": await _in_runtime(world.runtime),
        "mounts": [mount.path for mount in mount_table() if mount.path.startswith(places)],
        "cgroups": _pod_cgroups(home.name),
        "netns": [name for name in namespaces if (NETNS / name).exists()],
        "ports of the bridge": [p.name for p in Path(f"/sys/class/net/{bridge}/brif").glob("*")],
        "address translation": address_translation(bridge),
        "shims": [str(pid) for pid in shims_of(containerd_directory)],
        "logs": [path.name for path in (home / "log" / "pods").glob("*")],
        "log links": [path.name for path in (home / "log" / "containers").glob("*")],
        "directories of pods": [path.name for path in (home / "kubelet" / "pods").glob("*")],
    }
    return {kind: sorted(things) for kind, things in found.items() if things}


async def _in_runtime(runtime: CriRuntime) -> list[str]:
    pods = (await runtime.observe()).values()
    return [f"{pod.name}: {len(pod.sandboxes)} sandboxes, {len(pod.containers)} containers" for pod in pods]


def _pod_cgroups(root: str) -> list[str]:
    found = {path.name for top in cgroups_of(root) for path in directories_below(top)}
    return [name for name in found if name.startswith("pod") and len(name) > 30]


def network_namespace(pid: int, place: Path = NETNS) -> set[str]:
    """The name in this directory of a running process's network namespace; inodes are used again, names are not."""
    names = set()
    for file in place.glob("*"):
        with suppress(OSError):  # of others, who come and go
            if file.stat().st_ino == Path(f"/proc/{pid}/ns/net").stat().st_ino:
                names.add(file.name)
    return names
