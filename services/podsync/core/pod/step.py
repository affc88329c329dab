"""Has what a decision gets and returns: what a pod's next step depends on, and that step."""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.tracked_pod import PodEvent, TrackedPod

WAITS_FOR_CPUS = "running containers to leave the CPUs of this one"
WAITS_FOR_TURN = "its turn to start"


class StepInputs(Struct, frozen=True, kw_only=True):
    """Has what a step depends on besides the pod itself."""

    now: float  # seconds of the steady clock
    name_taken: bool = False  # whether another pod of the same full name has not finished
    network_ready: bool = True
    network_message: str = ""
    runtime_listed: bool = False  # whether pleg's list of the runtime's pods is complete and fresh
    volumes_known: bool = True  # whether the replica of volumes.mounted is complete and fresh
    maximum_backoff: float = 300.0  # seconds
    dead_instances_kept: int = 1  # of each container
    still_listed: bool = False  # whether a source lists the pod (API: its object still exists)
    victims_until: float = 0.0  # until when to wait for the pods preempted for this one, 0 = they have stopped
    node_ips: tuple[str, ...] = ()  # the Node's addresses, else the machine's, as pod statuses show them
    static_cpus: bool = False  # whether containers have cpusets
    shared_cpus: str = ""  # cpuset of containers without CPUs of their own
    # Returns the CPUs on which containers of other pods may run now; None = any may be. It looks at all pods.
    occupied_cpus: Callable[[], frozenset[int] | None] = frozenset
    skew: float = 0.0  # seconds of the wall clock ahead of `now`
    waits_for_turn: Callable[[], bool] = bool  # returns whether other pods that start go first; False = it may begin


@dataclass(kw_only=True)
class Step:
    """Has the decision about a pod: a call, or the moment of the next decision. `done` = nothing is left to do in this
    state of the pod. `tracked` is the pod after the decision."""

    tracked: TrackedPod
    call: Call | None = None
    wake_at: float = 0.0
    done: bool = False
    waits_for: str = ""  # for the pod's story
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # waiting reasons found on the way
    events: list[PodEvent] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether neither a call nor a wait was decided yet, so that the decision continues with `tracked`."""
        return self.call is None and not self.waits_for and not self.done

    def wake_earlier(self, when: float) -> None:
        """Set the moment of the next decision, where it is earlier than the one set before."""
        self.wake_at = when if self.wake_at == 0.0 else min(self.wake_at, when)
