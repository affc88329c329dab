"""Names the cells of the kill matrix: who is hit, how, and at which moment. Pure; performs nothing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import combinations

from bus.messages.streams import SERVICES

SUPERVISORD, CONTAINERD, API_SERVER = "supervisord", "containerd", "api-server"
STOPPED_SECONDS = 5.0


class Hit(StrEnum):
    """What happens to the victims."""

    NOTHING = "none"  # the undisturbed run that the others are compared with
    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGSTOP, and SIGCONT after STOPPED_SECONDS


class Moment(StrEnum):
    """When it happens."""

    IDLE = "idle"  # nothing but the steady pods
    MID_FLIGHT = "mid-flight"  # half of the pods are starting while the other half stops
    POINT = "point"  # at a named crash point


class Trigger(StrEnum):
    """What brings a process to a crash point."""

    START = "start"  # a pod is created
    BARE = "bare"  # a pod without any volume is created
    END = "end"  # a pod is deleted
    UPDATE = "update"  # a ConfigMap that a pod mounts changes
    BOOT = "boot"  # the process is killed and comes back


@dataclass(frozen=True)
class Cell:
    """One cell. `victims` are services, `supervisord`, `containerd`, `api-server`; none in an undisturbed run."""

    victims: tuple[str, ...] = ()
    hit: Hit = Hit.KILL
    moment: Moment = Moment.IDLE
    point: str = ""
    trigger: Trigger | None = None

    @property
    def name(self) -> str:
        """`podsync/kill/idle`, `pleg+status/kill/mid-flight`, `podsync/point/podsync.saved.KillPod`."""
        who = "everything" if set(self.victims) == {SUPERVISORD, *SERVICES} else "+".join(self.victims) or "none"
        if self.trigger is not None:
            return f"{who}/point/{self.point}" + ("/update" if self.trigger is Trigger.UPDATE else "")
        return f"{who}/{self.hit}/{self.moment}"

    @property
    def is_one_process(self) -> bool:
        """One process alone is hit: what the goal of three seconds speaks of."""
        return len(self.victims) == 1

    def hits(self, victim: str) -> bool:
        """Whether it is among the victims."""
        return victim in self.victims


UNDISTURBED = tuple(Cell(hit=Hit.NOTHING, moment=moment) for moment in (Moment.IDLE, Moment.MID_FLIGHT))

_CREATING = ("RunPodSandbox", "CreateContainer", "StartContainer")
_ENDING = ("KillPod", "RemoveContainers", "ReleasePod")
_WRITER = ("directory", "files", "ownership", "links", "data_link", "rename", "stale_links", "old_directory")
POINTS: tuple[tuple[str, Trigger], ...] = (
    *((f"sources.{step}", Trigger.START) for step in ("saved", "published")),
    ("podsync.published.PreparePod", Trigger.START),
    *((f"podsync.{step}.{call}", Trigger.START) for call in _CREATING for step in ("saved", "calling", "acted")),
    *((f"podsync.{step}.KillPod", Trigger.END) for step in ("saved", "published")),
    *((f"podsync.{step}.{call}", Trigger.END) for call in _ENDING for step in ("calling", "acted")),
    *((f"volume.{step}.MakePodDirectories", Trigger.BARE) for step in ("calling", "acted")),
    *((f"volume.{step}.MountVolume", Trigger.START) for step in ("calling", "acted")),
    *(
        (f"volume.{step}.{operation}", Trigger.END)
        for operation in ("UnmountVolume", "RemovePodDirectory")
        for step in ("calling", "acted")
    ),
    *((f"volume.writer.{step}", Trigger.START) for step in _WRITER),
    *((f"volume.writer.{step}", Trigger.UPDATE) for step in ("files", "data_link", "rename", "old_directory")),
    *((f"bootstrap.{step}", Trigger.BOOT) for step in ("configured", "published")),
)


def singles() -> Iterator[Cell]:
    """Each service alone: killed idle, killed in the middle, stopped."""
    for service in SERVICES:
        yield Cell((service,))
    for service in SERVICES:
        yield Cell((service,), moment=Moment.MID_FLIGHT)
    for service in SERVICES:
        yield Cell((service,), Hit.STOP)


def specials() -> Iterator[Cell]:
    """Those around the seven: supervisord alone and with all of them, the runtime, the API server."""
    for victims in ((SUPERVISORD,), (SUPERVISORD, *SERVICES), (CONTAINERD,), (API_SERVER,)):
        for moment in (Moment.IDLE, Moment.MID_FLIGHT):
            yield Cell(victims, moment=moment)
    yield Cell((SUPERVISORD,), Hit.STOP)


def points() -> Iterator[Cell]:
    """Each named crash point that a pod, a change or a start of bootstrap reaches."""
    for point, trigger in POINTS:
        yield Cell((point.split(".")[0],), moment=Moment.POINT, point=point, trigger=trigger)


def pairs() -> Iterator[Cell]:
    """Every two services at once, idle and in the middle; and each with supervisord."""
    for moment in (Moment.IDLE, Moment.MID_FLIGHT):
        for pair in combinations(SERVICES, 2):
            yield Cell(pair, moment=moment)
    for service in SERVICES:
        yield Cell((SUPERVISORD, service))


def matrix(*, with_points: bool, with_pairs: bool, brief: bool = False) -> list[Cell]:
    """The cells of a run, undisturbed ones first. `brief`: only what depends on who started the services."""
    if brief:
        quick = [cell for cell in singles() if cell.hit is Hit.KILL]
        around = [cell for cell in specials() if cell.hits(SUPERVISORD) and cell.hit is Hit.KILL]
        return [*UNDISTURBED, *quick, *around]
    cells = [*UNDISTURBED, *singles(), *specials()]
    return [*cells, *(points() if with_points else ()), *(pairs() if with_pairs else ())]


def chosen(cells: Iterable[Cell], glob: str) -> list[Cell]:
    """Those whose name matches; the undisturbed cell of each moment that is left stays, to compare with."""
    matching = [cell for cell in cells if cell.hit is Hit.NOTHING or fnmatchcase(cell.name, glob)]
    moments = {cell.moment for cell in matching if cell.hit is not Hit.NOTHING}
    return [
        cell for cell in matching if cell.hit is not Hit.NOTHING or cell.moment is Moment.IDLE or cell.moment in moments
    ]
