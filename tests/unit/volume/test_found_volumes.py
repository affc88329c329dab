"""What a restarted process takes a volume on disk for."""

from pathlib import Path

from services.volume.adapters.csi_records import save_record
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import Node
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.registry import volume_spec
from shared.pods.directory import make_directory
from shared.time.clock import SystemClock


def test_a_published_csi_volume_may_be_attached_and_files_of_a_pod_are_not(tmp_path: Path) -> None:
    """The driver stages nothing, so that no device is on disk: the volume alone keeps its name in volumesInUse."""
    directories = PodDirectories(str(tmp_path))
    for plugin, name in (("kubernetes.io/csi", "pv-1"), ("kubernetes.io/configmap", "cfg")):
        make_directory(directories.volume("u", plugin, name).parent, 0o750)
        make_directory(directories.volume("u", plugin, name), 0o750)
    save_record(directories.volume("u", "kubernetes.io/csi", "pv-1"), {"driverName": "ebs", "volumeHandle": "vol-1"})
    calls = PluginCalls(directories, SystemClock())
    reconciler = Reconciler(DesiredStateOfWorld(lambda pod, name: volume_spec(pod, name, Node())), ActualStateOfWorld())
    reconciler.add_devices_on_disk(calls.find_devices())
    reconciler.add_volumes_on_disk("u", calls.find_volumes("u"))
    found = {name: volume.attachable for name, volume in reconciler.actual.volumes_of("u")}
    assert found == {"kubernetes.io/csi/pv-1": True, "cfg": False}
    assert reconciler.actual.attachable() == {"kubernetes.io/csi/ebs^vol-1"}
