"""A root directory, and a directory of FlexVolume drivers of which one is installed, `acme/disk`."""

import time
from collections.abc import Callable
from pathlib import Path

from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.plugins.flex_volume import FlexVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.time.clock import SystemClock
from tests.support.waits.deadline import WAIT_SECONDS

PROGRAMS = Path(__file__).parents[1] / "programs"


class FlexMachine:
    """The machine with one volume `name` of the pod `u`."""

    def __init__(self, directory: Path, name: str) -> None:
        self.root, self.drivers, self.name = directory / "root", directory / "drivers", name
        self.here = self.drivers / "acme~disk"
        self.here.mkdir(parents=True)
        self.path = self.root / "pods" / "u" / "volumes" / "acme~disk" / name
        self.device = self.root / "plugins" / "kubernetes.io" / "flexvolume" / "acme" / "disk" / "mounts" / name
        self.restart()

    def install(self, program: str) -> None:
        """Install the program as the driver, in place of another one in one step."""
        (self.here / ".new").symlink_to(PROGRAMS / program)
        (self.here / ".new").rename(self.here / "disk")

    def restart(self) -> None:
        """What is in memory is gone."""
        clock = SystemClock()
        drivers = FlexDrivers(str(self.drivers), clock)
        self.plugin = FlexVolumePlugin(PodDirectories(str(self.root)), clock, flex_drivers=drivers)

    def fault(self, text: str) -> None:
        (self.here / "fault").write_text(text)

    def calls(self) -> list[str]:
        return (self.here / "calls").read_text().splitlines()

    def tear_down(self) -> None:
        self.plugin.tear_down("u", self.name, RemovalProgress())


def until(met: Callable[[], bool]) -> None:
    """Until that is so, which nothing reports."""
    end = time.monotonic() + WAIT_SECONDS
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)
