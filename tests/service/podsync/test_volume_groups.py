"""The groups of PersistentVolumes reach the processes of the pod: its sandbox and its containers (volumes.md 2.9)."""

from pathlib import Path
from typing import Any

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import CallDone
from shared.model.frozen_copy import replace
from tests.service.podsync.performer import UID, Performer, a_container, a_pod

GROUPS = {"a": 5005, "b": 70, "c": None, "d": 5005}


class Mounting(Performer):
    """A pod with volumes of these groups that asks for group 70 itself."""

    def __init__(self, directory: Path) -> None:
        context = {"fsGroup": 1, "supplementalGroups": [70]}
        super().__init__(directory, a_pod(a_container(), enableServiceLinks=True, securityContext=context))

    def view(self) -> Any:
        volumes = {
            name: MountedVolume(state=VolumeState.MOUNTED, host_path=f"/{name}", group=group)
            for name, group in GROUPS.items()
        }
        return replace(super().view(), volumes=MountedVolumes(uid=UID, volumes=volumes))


async def test_each_group_is_given_once_to_sandbox_and_container(tmp_path: Path) -> None:
    stage = Mounting(tmp_path)
    done = await stage.create()
    assert isinstance(done, CallDone), done
    [request] = stage.runtime.requests("CreateContainer")
    security = request["config"]["linux"]["security_context"]
    assert sorted(map(int, security["supplemental_groups"])) == [1, 70, 5005]
    of_sandbox = request["sandbox_config"]["linux"]["security_context"]
    assert sorted(map(int, of_sandbox["supplemental_groups"])) == [1, 70, 5005]
