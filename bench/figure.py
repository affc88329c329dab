"""Defines figures and scenarios, and how a scenario hands over its samples. `bench.table` lists all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench.statistics import Better, Goal


@dataclass(frozen=True)
class Figure:
    """A row of the report. `go_136`: what the Go kubelet 1.36 reached elsewhere, as text. `optional`: the figure may be
    absent."""

    key: str
    title: str
    unit: str
    goals: tuple[Goal, ...] = ()
    go_136: str = ""
    better: Better = "lower"
    optional: bool = False

    @property
    def family(self) -> str:
        """The chart that shows the figure."""
        return self.key.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured in one session of one agent."""

    rounds: int = 2
    one_by_one: int = 8
    burst: int = 30
    large: int = 0
    exits: int = 10
    probes: int = 6
    secrets: int = 3
    volume_pods: int = 100  # each has four volumes
    starts: int = 2
    settle: float = 15.0  # before an idle node is measured
    idle: float = 60.0  # seconds
    scrapes: int = 10
    crowd: int = 50  # pods that run while the kubelet's port is measured
    execs: int = 5  # batches of 10
    log_mib: int = 64
    kills: tuple[str, ...] | None = None  # the services to kill; None = all seven
    standing: int = 5  # pods that run while processes are killed
    floor: int = 10
    equal_rates: bool = False


QUICK = Plan(
    rounds=1, one_by_one=2, exits=3, probes=2, secrets=1, volume_pods=20, starts=1, settle=5.0, idle=15.0, scrapes=3,
    execs=2, log_mib=16, kills=("podsync", "server"), standing=2, floor=3,
)  # fmt: skip


@dataclass
class Samples:
    """The samples of one session of one agent. `details`: further figures by title and name."""

    agent: str
    round: int
    values: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)  # by figure: why it is absent
    details: dict[str, dict[str, float]] = field(default_factory=dict)

    def sample(self, key: str, value: float) -> None:
        """Add a sample of a figure, in its unit."""
        self.values.setdefault(key, []).append(value)

    def is_absent(self, key: str, why: str) -> None:
        """Note that the agent does not have what the figure measures."""
        self.absent[key] = why

    def detail(self, title: str, name: str, value: float) -> None:
        """Add a figure that is shown beside the table."""
        self.details.setdefault(title, {})[name] = float(value)


@dataclass(frozen=True)
class Scenario:
    """Takes the samples of some figures: `run(node, samples, plan)`; for the floor, where no agent runs, `node` is
    the site. Raises BenchError where a sample cannot be had."""

    name: str
    run: Callable[[Any, Samples, Plan], Awaitable[None]]
    figures: tuple[Figure, ...]
    floor: bool = False
    large: bool = False  # only with --large
