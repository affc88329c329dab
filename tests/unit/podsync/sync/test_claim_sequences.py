"""In random sequences of pods, drivers and restarts no container starts before the claims of its pod are prepared, no
end is shown before they are unprepared, and in the end no claim is left."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from bus.messages.resource_claims import ClaimState
from services.podsync.core.pod.events import ClaimsChanged, ClaimsFreshness, Event
from services.podsync.core.pod.instructions import Call, CreateContainer, Instruction, PublishStatus, RunPodSandbox
from tests.unit.podsync.claim_volume import ClaimVolume
from tests.unit.podsync.play import Play
from tests.unit.podsync.sync.test_resource_claims import GPU, TEMPLATE, created, extended, with_claims

SHARED = {"name": "shared", "resourceClaimName": "of-all"}


@dataclass
class WatchedPlay(Play):
    """A play that looks at each call and at each status. `overdue`: pods whose claims could not be unprepared for five
    minutes; they end, whatever volume publishes after that."""

    overdue: set[str] = field(default_factory=set)

    def handle(self, event: Event) -> None:
        if isinstance(event, ClaimsChanged) and event.claims is not None and event.claims.overdue:
            self.overdue.add(event.uid)
        super().handle(event)

    def _call(self, call: Call) -> None:
        if isinstance(call, RunPodSandbox | CreateContainer):
            states = [claim.state for claim in self.claims[call.uid].claims] if call.uid in self.claims else []
            assert set(states) <= {ClaimState.PREPARED}, f"{call} while claims are {states}"
            assert states or call.uid == "plain", f"{call} without claims"
        super()._call(call)

    def _do(self, instruction: Instruction) -> None:
        if isinstance(instruction, PublishStatus) and instruction.status.status["phase"] in ("Succeeded", "Failed"):
            uid = instruction.status.uid
            held = self.claims.get(uid)
            assert held is None or uid in self.overdue, f"{uid} has ended before {held}"
        super()._do(instruction)


class ClaimWorld:
    """Has a node with a driver. `chance` decides what happens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.play = WatchedPlay(source="api")
        self.volume = ClaimVolume(self.play)
        self.pods = 0
        self.steps: tuple[Callable[[], None], ...] = (
            self.add_pod,
            self.remove_pod,
            self.make_claims,
            self.end_container,
            self.volume.act,
            self.volume.act,
            self.volume.act,
            self.change_driver,
            self.lose_volume,
            self.restart_volume,
            self.kill_process,
            self.let_time_pass,
        )

    def add_pod(self) -> None:
        self.pods += 1
        uid = f"u{self.pods}"
        kind = self.chance.choice(("own", "shared", "template", "extended"))
        own = {"name": "gpu", "resourceClaimName": f"own-{uid}"}
        claims = {"own": (own,), "shared": (own, SHARED), "template": (TEMPLATE,), "extended": ()}[kind]
        status: dict[str, Any] = extended(f"ext-{uid}") if kind == "extended" else {}
        pod = with_claims(*claims, uid=uid, name=f"pod{self.pods}", **status)
        pod["spec"]["restartPolicy"] = self.chance.choice(("Always", "Never"))
        self.play.want(pod)

    def remove_pod(self) -> None:
        if self.play.wanted:
            self.play.drop(self.chance.choice(sorted(self.play.wanted)))

    def make_claims(self) -> None:
        """Let the controller of the templates do its work."""
        for uid, pod in list(self.play.wanted.items()):
            if TEMPLATE in pod["spec"]["resourceClaims"] and not pod["status"]:
                self.play.want({**pod, "status": created(nic=f"made-{uid}")})

    def end_container(self) -> None:
        running = [uid for uid in self.play.containers if self.play.running(uid)]
        if running:
            self.play.exit(self.chance.choice(running), self.chance.choice((0, 1)))

    def change_driver(self) -> None:
        self.volume.away = not self.volume.away

    def lose_volume(self) -> None:
        """The replica of the claims becomes stale, or fresh again."""
        if self.chance.random() < 0.5:
            self.play.list_claims()
        else:
            self.play.happen(ClaimsFreshness(complete=True, stale=True))

    def restart_volume(self) -> None:
        self.volume.restart()
        self.volume.follow()
        self.volume.publish()

    def kill_process(self) -> None:
        self.play.kill_at = self.play.steps + self.chance.choice((1, 2, 3, 5, 8))
        self.play.claims_listed = self.chance.random() < 0.5
        steps = (self.add_pod, self.remove_pod, self.end_container, self.volume.act)
        self.chance.choice((self.play.restart, *(step for step in steps if step in self.steps)))()
        self.play.kill_at, self.play.claims_listed = -1, True
        if self.chance.random() < 0.7:
            self.play.list_claims()

    def let_time_pass(self) -> None:
        self.play.later(self.chance.choice((1.0, 15.0, 90.0, 400.0)))

    def settle(self) -> None:
        """Let every pod end with a driver that answers."""
        self.volume.away = False
        for uid in list(self.play.wanted):
            self.play.drop(uid)
        self.play.list_claims()
        for _ in range(4):
            self.play.later(70)
            self.volume.act()


@pytest.mark.share(4, test=3)
@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 400))])
def test_pods_start_and_end_with_their_claims_and_leave_none(seed: int) -> None:
    world = ClaimWorld(seed)
    world.play.want(with_claims(GPU, uid="first", name="first"))
    world.volume.act()
    assert world.play.running("first") == [("c", 0)]
    for _ in range(40):
        world.chance.choice(world.steps)()
    world.settle()
    assert world.volume.claims.claims == () and world.play.claims == {}
    assert [uid for uid, shown in world.play.published.items() if not shown.volumes.finished] == []
    assert all(world.play.running(uid) == [] for uid in world.play.containers)


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(8))
def test_a_pod_that_stays_runs_in_the_end(seed: int) -> None:
    world = ClaimWorld(seed)
    world.steps = tuple(step for step in world.steps if step not in (world.remove_pod, world.end_container))
    world.play.want(with_claims(GPU, uid="first", name="first"))
    for _ in range(40):
        world.chance.choice(world.steps)()
    world.volume.away = False
    world.play.list_claims()
    world.make_claims()
    for _ in range(3):
        world.play.later(70)
        world.volume.act()
    assert {uid for uid in world.play.wanted if not world.play.running(uid)} == set()
