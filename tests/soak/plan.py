"""What the soak does and when: a pure function of seed, round and length. Knows what each pod must be afterwards.

Every round begins on an empty node, so that one round can be run again alone. Nothing here looks at the cluster: the
plan keeps its own account of the pods it has made.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from tests.soak.shapes import LASTING, Outcome, Shape, outcome_of

AT_ONCE = 12  # pods, those still ending included
ENDING = 8.0  # seconds for which a deleted pod still counts
SHORTEST, LONGEST = 0.5, 1.2  # seconds between two operations: at most two a second
GRACES = (0, 1, 5)
VICTIMS = ("bootstrap", "sources", "podsync", "volume", "pleg", "status", "server", "containerd")


class Kind(StrEnum):
    """What is done."""

    CREATE = "create"
    DELETE = "delete"  # amount: the grace in seconds
    LABEL = "label"
    ANNOTATE = "annotate"
    IMAGE = "image"
    DEADLINE = "deadline"  # amount: activeDeadlineSeconds
    SETTINGS = "settings"
    SEALED = "sealed"
    EXEC = "exec"
    EXEC_BROKEN = "exec-broken"
    LOGS = "logs"
    LOGS_BROKEN = "logs-broken"
    ATTACH_BROKEN = "attach-broken"
    FORWARD = "forward"
    KILL_CONTAINER = "kill-container"
    KILL_PROCESS = "kill-process"  # pod: the name of the process
    PAUSE = "pause"  # of the API server; amount in seconds


WEIGHTS = {
    Kind.CREATE: 26,
    Kind.DELETE: 18,
    Kind.LABEL: 4,
    Kind.ANNOTATE: 4,
    Kind.IMAGE: 3,
    Kind.DEADLINE: 2,
    Kind.SETTINGS: 5,
    Kind.SEALED: 5,
    Kind.EXEC: 6,
    Kind.EXEC_BROKEN: 5,
    Kind.LOGS: 5,
    Kind.LOGS_BROKEN: 5,
    Kind.ATTACH_BROKEN: 3,
    Kind.FORWARD: 3,
    Kind.KILL_CONTAINER: 4,
    Kind.KILL_PROCESS: 4,
    Kind.PAUSE: 1,
}
SESSIONS = (Kind.EXEC, Kind.EXEC_BROKEN, Kind.LOGS, Kind.LOGS_BROKEN, Kind.ATTACH_BROKEN)
# The first round does all of it once, so that what is made once and kept is there before anything is compared.
OPENING = (*SESSIONS, Kind.FORWARD, Kind.SETTINGS, Kind.SEALED, Kind.LABEL, Kind.IMAGE, Kind.KILL_CONTAINER, Kind.PAUSE)


@dataclass(frozen=True)
class Operation:
    """One thing to do, `at` seconds into its round. `container`: which one is meant."""

    at: float
    kind: Kind
    pod: str = ""
    shape: Shape = Shape.PLAIN
    amount: int = 0
    container: str = "main"

    def __str__(self) -> str:
        words = (f"{self.at:6.1f} s {self.kind}", self.pod, str(self.amount or ""))
        return " ".join(word for word in words if word)


@dataclass
class Expected:
    """A pod that is there at the end of the round."""

    shape: Shape
    made_at: float
    outcome: Outcome
    hurt: set[str] = field(default_factory=set)  # containers that were killed or given another image


@dataclass(frozen=True)
class Round:
    """The operations of one round in order, and what there must be afterwards, by name."""

    number: int
    operations: tuple[Operation, ...]
    expected: dict[str, Expected]


def victims_of(seed: int, number: int, rounds: int) -> tuple[str, ...]:
    """Which processes may be killed in round `number` of 1 to `rounds`: two in each quarter of the soak, each in one.

    So each process runs for half the soak or more without a kill, and its memory can be checked, while others are
    killed all the time.
    """
    if number < 1:
        return ()
    order = Random(f"{seed}/victims").sample(VICTIMS, len(VICTIMS))
    quarter = min(4 * (number - 1) // rounds, 3)
    return tuple(order[2 * quarter : 2 * quarter + 2])


def plan_round(seed: int, number: int, seconds: float, victims: Sequence[str]) -> Round:
    """The round of this number. Round 0 is the warm-up: it does everything once and kills no process."""
    return _Planner(Random(f"{seed}/{number}"), number, seconds, victims).plan()


class _Planner:
    def __init__(self, random: Random, number: int, seconds: float, victims: Sequence[str]) -> None:
        self._random, self._number, self._seconds, self._victims = random, number, seconds, victims
        self._now = 0.0
        self._made = 0
        self._alive: dict[str, Expected] = {}
        self._ending: list[float] = []  # until when a deleted pod may take room
        self._reuse: list[str] = []  # names that a deletion without grace has freed at once
        self._done: list[Operation] = []

    def plan(self) -> Round:
        if self._number == 0:
            for shape in Shape:
                self._create(shape)
            for kind in OPENING:
                self._one(kind)
        elif self._victims:  # however short the round is
            for kind in (Kind.CREATE, Kind.CREATE, Kind.CREATE, Kind.KILL_PROCESS):
                self._one(kind)
        while self._now < self._seconds:
            self._one(self._choose())
        return Round(self._number, tuple(self._done), self._alive)

    def _choose(self) -> Kind:
        kinds = [kind for kind in WEIGHTS if self._possible(kind)]
        return self._random.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]

    def _possible(self, kind: Kind) -> bool:
        match kind:
            case Kind.CREATE:
                return self._room()
            case Kind.DELETE:
                return len(self._alive) > 3
            case Kind.KILL_PROCESS:
                return bool(self._victims) and self._number > 0
            case Kind.PAUSE:
                return not any(done.kind is Kind.PAUSE for done in self._done[-20:])
            case Kind.SETTINGS | Kind.SEALED:
                return True
            case Kind.KILL_CONTAINER | Kind.IMAGE | Kind.DEADLINE:
                return bool(self._unhurt())
            case Kind.FORWARD:
                return bool(self._lasting(Shape.PROBED))
            case _:
                return bool(self._lasting())

    def _one(self, kind: Kind) -> None:
        match kind:
            case Kind.CREATE:
                self._create(self._random.choice(list(Shape)))
            case Kind.DELETE:
                self._delete()
            case Kind.SETTINGS | Kind.SEALED:
                self._add(kind, amount=self._random.randrange(1, 1000))
            case Kind.KILL_PROCESS:
                self._add(kind, self._random.choice(list(self._victims)))
            case Kind.PAUSE:
                self._add(kind, amount=self._random.randrange(1, 4))
            case Kind.KILL_CONTAINER | Kind.IMAGE:
                name = self._random.choice(self._unhurt())
                self._alive[name].hurt.add("main")
                self._add(kind, name)
            case Kind.DEADLINE:
                self._set_deadline(self._random.choice(self._unhurt()))
            case Kind.FORWARD:
                self._add(kind, self._random.choice(self._lasting(Shape.PROBED)))
            case Kind.LABEL | Kind.ANNOTATE:
                self._add(kind, self._random.choice(self._lasting()), amount=self._random.randrange(1000))
            case _:
                self._add(kind, self._random.choice(self._lasting()))

    def _create(self, shape: Shape) -> None:
        if self._reuse and self._random.random() < 0.5:
            name = self._reuse.pop()
        else:
            self._made += 1
            name = f"soak-{self._number}-{self._made}"
        self._alive[name] = Expected(shape, self._now, outcome_of(shape))
        self._add(Kind.CREATE, name, shape=shape)

    def _delete(self) -> None:
        name = self._random.choice(list(self._alive))
        grace = self._random.choice(GRACES)
        del self._alive[name]
        self._ending.append(self._now + ENDING)
        if grace == 0:
            self._reuse.append(name)
        self._add(Kind.DELETE, name, amount=grace)

    def _set_deadline(self, name: str) -> None:
        pod = self._alive[name]
        short = self._random.random() < 0.5
        if short:
            pod.outcome = Outcome.FAILED
            pod.hurt.add("main")
        self._add(Kind.DEADLINE, name, amount=1 if short else 3600)

    def _add(self, kind: Kind, pod: str = "", *, shape: Shape = Shape.PLAIN, amount: int = 0) -> None:
        known = self._alive.get(pod)
        self._done.append(Operation(round(self._now, 3), kind, pod, known.shape if known else shape, amount))
        self._now += self._random.uniform(SHORTEST, LONGEST)

    def _room(self) -> bool:
        self._ending = [until for until in self._ending if until > self._now]
        return len(self._alive) + len(self._ending) < AT_ONCE

    def _lasting(self, *shapes: Shape) -> list[str]:
        wanted: Iterable[Shape] = shapes or LASTING
        return [n for n, pod in self._alive.items() if pod.shape in wanted and pod.outcome is Outcome.READY]

    def _unhurt(self) -> list[str]:
        """Pods that one more blow may hit: the first restart of a container comes at once, later ones are put off."""
        old_enough = self._now - 4.0
        return [n for n in self._lasting() if not self._alive[n].hurt and self._alive[n].made_at <= old_enough]
