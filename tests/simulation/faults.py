"""The faults of one run: a list that can be shortened, each fault with all its own numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.simulation.network import ARRIVES, Transfer

SERVICES = ("sources", "podsync", "pleg", "volume", "status")
STREAMS = (
    ("sources", "pods.desired"),
    ("sources", "node.object"),
    ("sources", "objects.changed"),
    ("podsync", "pods.admitted"),
    ("podsync", "pods.volumes"),
    ("podsync", "pods.probes"),
    ("podsync", "pods.status"),
    ("pleg", "runtime.pods"),
    ("pleg", "node.observed"),
    ("pleg", "probes.results"),
    ("volume", "volumes.mounted"),
)
CRASH_POINTS = {
    "podsync": (
        "podsync.saved",
        "podsync.published",
        "podsync.acted",
        "podsync.acted.RunPodSandbox",
        "podsync.acted.CreateContainer",
        "podsync.acted.StartContainer",
        "podsync.acted.KillPod",
    ),
    "volume": ("volume.calling", "volume.acted"),
    "sources": ("sources.saved", "sources.published"),
}
CRI_WRITES = (
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "StopPodSandbox",
    "RemoveContainer",
    "RemovePodSandbox",
)
CRI_READS = ("Observe", "ImageStatus", "Status", "ExecSync")


@dataclass(frozen=True)
class BusFault:
    """For a while every `every`-th frame of a stream on its way to one service is lost, doubled or late."""

    at: float
    seconds: float
    stream: str  # "requests" and "answers" too, "beats" too
    sender: str  # "" = any
    receiver: str  # "" = any
    kind: str  # drop | duplicate | delay
    delay: float
    every: int


@dataclass(frozen=True)
class Kill:
    """SIGKILL of a service: `steps` turns after `at` and `lines` of code into that turn, or at a crash point if it
    comes to one within a while; a new incarnation `down` seconds later."""

    at: float
    service: str
    steps: int
    lines: int
    crash_at: str
    down: float


@dataclass(frozen=True)
class ClockStep:
    """The node's wall clock is set."""

    at: float
    seconds: float


@dataclass(frozen=True)
class RuntimeFault:
    """For a while calls of a method (all: "") fail `times` times. `effect`: they are carried out all the same, `late`
    seconds after the caller got the failure."""

    at: float
    seconds: float
    method: str
    code: str
    effect: bool
    late: float
    times: int


@dataclass(frozen=True)
class ApiFault:
    """For a while the API server is away (down), silent (silent), or answers `times` requests with an error (500, 429,
    409), or carries them out and loses the answer (lost); or breaks all watches (broken), or also forgets (gone)."""

    at: float
    seconds: float
    kind: str
    times: int


@dataclass(frozen=True)
class OtherAgentRuns:
    """Every service is killed and starts again after `seconds`; meanwhile another agent runs the static pod with this
    full name. Not drawn: what users and that agent do would depend on each other."""

    at: float
    seconds: float
    pod: str


@dataclass(frozen=True)
class PluginFault:
    """For a while the device plugin, and the driver of resource claims, is gone (dead), ends for this time at its next
    call or Allocate (dies), answers calls a second late (slow) or not at all (silent), or half of its devices are
    unhealthy (unhealthy)."""

    at: float
    seconds: float
    kind: str


@dataclass(frozen=True)
class MachineBoots:
    """The machine loses its power and runs again after `seconds`: every process has ended, and what is kept in memory
    is gone. `keeps`: the runtime still lists the pods, as ended. Not drawn: all containers are started again."""

    at: float
    seconds: float
    keeps: bool


Fault = BusFault | Kill | ClockStep | RuntimeFault | ApiFault | OtherAgentRuns | PluginFault | MachineBoots


def draw_faults(rng: Random, until: float) -> tuple[Fault, ...]:
    """Between one and seven faults within the first `until` seconds, in the order of their times."""
    count = rng.choice((1, 2, 2, 3, 3, 4, 5, 7))
    found: list[Fault] = []
    for _ in range(count):
        at = round(rng.uniform(0.0, until), 3)
        match rng.choices(("bus", "kill", "clock", "runtime", "api"), (30, 35, 4, 18, 13))[0]:
            case "bus":
                found.append(_bus_fault(rng, at))
            case "kill":
                found.append(_kill(rng, at))
            case "clock":
                found.append(ClockStep(at, rng.choice((-3600.0, -30.0, -2.0, 30.0, 900.0, 86400.0))))
            case "runtime":
                found.append(_runtime_fault(rng, at))
            case _:
                kind = rng.choice(("down", "silent", "500", "429", "409", "lost", "broken", "gone"))
                found.append(ApiFault(at, round(rng.uniform(0.5, 12.0), 3), kind, rng.randint(1, 4)))
    return tuple(sorted(found, key=lambda fault: (fault.at, repr(fault))))


def end_of(faults: Sequence[Fault]) -> float:
    """Seconds when the last of them is over."""
    ends = [fault.at + getattr(fault, "seconds", 0.0) for fault in faults if not isinstance(fault, ClockStep)]
    ends += [fault.at for fault in faults if isinstance(fault, ClockStep)]
    ends += [fault.at + fault.down for fault in faults if isinstance(fault, Kill)]
    ends += [fault.at + fault.delay for fault in faults if isinstance(fault, BusFault)]
    return max(ends, default=0.0)


class BusFaults:
    """Copies and delay of each frame, from the bus faults of this run."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = [fault for fault in faults if isinstance(fault, BusFault)]
        self._counts = [0] * len(self._faults)

    def transfer(self, seconds: float, sender: str, receiver: str, stream: str) -> tuple[Transfer, BusFault | None]:
        """Of one frame `seconds` after the beginning, and the fault that decided it."""
        for index, fault in enumerate(self._faults):
            if not fault.at <= seconds < fault.at + fault.seconds or fault.stream != stream:
                continue
            if fault.sender not in ("", sender) or fault.receiver not in ("", receiver):
                continue
            self._counts[index] += 1
            if self._counts[index] % fault.every:
                continue
            match fault.kind:
                case "drop":
                    return Transfer(copies=0), fault
                case "duplicate":
                    return Transfer(copies=2), fault
                case _:
                    return Transfer(seconds=fault.delay), fault
        return ARRIVES, None


def _bus_fault(rng: Random, at: float) -> BusFault:
    kind = rng.choice(("drop", "duplicate", "delay"))
    seconds, delay = round(rng.uniform(0.2, 15.0), 3), round(rng.choice((0.01, 0.1, 0.7, 2.5, 6.0)), 3)
    every = rng.choice((1, 1, 2, 3))
    roll = rng.random()
    if roll < 0.15:
        stream = rng.choice(("requests", "answers"))
        return BusFault(at, seconds, stream, "", rng.choice(("", *SERVICES)), kind, delay, every)
    if roll < 0.30:
        return BusFault(at, seconds, "beats", rng.choice(SERVICES), rng.choice(("", *SERVICES)), kind, delay, every)
    owner, stream = rng.choice(STREAMS)
    return BusFault(at, seconds, stream, owner, "", kind, delay, every)


def _kill(rng: Random, at: float) -> Kill:
    service = rng.choices(SERVICES, (20, 45, 10, 15, 15))[0]
    down = round(rng.choice((0.05, 0.3, 1.0, 4.0, 12.0)), 3)
    if service in CRASH_POINTS and rng.random() < 0.4:
        return Kill(at, service, 0, 0, rng.choice(CRASH_POINTS[service]), down)
    return Kill(at, service, rng.choice((1, 1, 2, 3, 5, 8, 13, 30, 80)), rng.choice((0, 0, 5, 20, 60, 150)), "", down)


def _runtime_fault(rng: Random, at: float) -> RuntimeFault:
    seconds = round(rng.uniform(0.5, 10.0), 3)
    if rng.random() < 0.3:
        return RuntimeFault(at, seconds, "", "Unavailable", False, 0.0, 0)
    method = rng.choice((*CRI_WRITES, *CRI_READS))
    code = rng.choice(("Unavailable", "DeadlineExceeded", "DeadlineExceeded", "Unknown", "Internal"))
    if method == "ExecSync" and code == "DeadlineExceeded":
        code = "Unknown"  # a probe that takes too long has failed (pods.md 10.3): the run without faults ends otherwise
    effect = method in CRI_WRITES and code in ("Unavailable", "DeadlineExceeded") and rng.random() < 0.7
    late = rng.choice((0.0, 0.0, 0.2, 1.5, 4.0)) if effect else 0.0
    return RuntimeFault(at, seconds, method, code, effect, late, rng.randint(1, 3))
