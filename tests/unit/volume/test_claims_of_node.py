"""Which resource claims are prepared and unprepared, as pods come, go and share claims: compared with what drivers have
in use after random sequences, and through the record."""

import random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages.resource_claims import ClaimState
from services.volume.core.resource_claims.claim import Claim, ClaimKey, Part, PartState, Use
from services.volume.core.resource_claims.claim_failures import Failures
from services.volume.core.resource_claims.claim_record import read_record, written_record
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from services.volume.core.resource_claims.driver_checks import Device
from services.volume.core.resource_claims.pod_claims import AllocatedClaim, ClaimError, PodIdentity, RequestedClaim

DRIVERS = ("gpu", "nic")


def identity(uid: str) -> PodIdentity:
    return PodIdentity(uid=uid, name=uid, namespace="shop")


def wanted(name: str) -> RequestedClaim:
    return RequestedClaim(name=name, claim=name)


def allocated(name: str, drivers: tuple[str, ...] = DRIVERS) -> AllocatedClaim:
    return AllocatedClaim(uid=f"uid-of-{name}", name=name, namespace="shop", drivers=drivers)


class Play:
    """Plays drivers and the controller, and keeps what each driver has in use, and which pods run with which claims."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = ClaimsOfNode()
        self.in_use: set[tuple[ClaimKey, str]] = set()  # claims that a driver may have prepared
        self.pods = 0
        self.running: dict[str, set[str]] = {}  # pod -> the claims that it has got
        self.record: tuple[Claim, ...] = ()

    def step(self) -> None:
        """Let one thing happen."""
        act = self.chance.choice(
            (self.start, self.start, self.end, self.prepare, self.prepare, self.unprepare, self.restart)
        )
        act()
        self.node.release()
        self.check()

    def start(self) -> None:
        self.pods += 1
        uid = f"pod{self.pods}"
        names = self.chance.sample(("a", "b", "c"), self.chance.randint(1, 3))
        self.running[uid] = set()
        self.node.set_pod(identity(uid), tuple(map(wanted, names)), starts=True)

    def end(self) -> None:
        if self.running:
            uid = self.chance.choice(sorted(self.running))
            del self.running[uid]
            self.node.end_pod(uid)

    def prepare(self) -> None:
        for uid in self.node.pods_due(1e9):
            for requested in self.node.unread(uid):
                self.node.use(uid, requested, allocated(requested.claim))
                self.running[uid].add(requested.claim)
            for driver, claims in self.node.to_call(uid).items():
                for claim in claims:
                    self.node.called(claim.key, driver)
                self.save()
                for claim in claims:
                    if self.chance.random() < 0.7:
                        self.in_use.add((claim.key, driver))
                        if self.chance.random() < 0.7:
                            self.node.prepared(claim.key, driver, ())
            if self.chance.random() < 0.7:
                self.save()

    def unprepare(self) -> None:
        for key in self.node.claims_due(1e9):
            claim = self.node.unused(key)
            assert claim is not None
            for driver in claim.parts:
                if self.node.begin_unprepare(key, driver) is not None and self.chance.random() < 0.7:
                    self.save()
                    self.in_use.discard((key, driver))
                    if self.chance.random() < 0.7:
                        self.node.unprepared(key, driver)

    def save(self) -> None:
        self.record = self.node.claims
        self.node.recorded(self.record)

    def restart(self) -> None:
        """Kill the process; all pods are listed again."""
        record = orjson.loads(orjson.dumps(written_record(self.record, "boot")))
        boot = self.chance.choice(("boot", "another boot"))
        self.node = ClaimsOfNode()
        self.node.restored(read_record(record, boot))
        held = {uid: {claim.name for claim in self.node.claims if uid in claim.pods} for uid in self.running}
        for uid, names in self.running.items():
            self.node.set_pod(identity(uid), tuple(map(wanted, sorted(names))), starts=True)
            self.running[uid] = names & held[uid]
        self.node.set_freshness(complete=True, stale=False)

    def check(self) -> None:
        known = {claim.key: claim for claim in self.node.claims}
        recorded = {(claim.key, uid) for claim in self.record for uid in claim.pods}
        for key, driver in self.in_use:
            assert known[key].parts[driver].state is not PartState.NEW, "a driver has it, and nothing remembers it"
        for uid, names in self.running.items():
            assert {claim.name for claim in self.node.held(uid)} == names
            item = self.node.shown(uid, 0.0)
            for claim in item.claims if item is not None else ():
                if claim.state is ClaimState.PREPARED:
                    key = ("shop", claim.claim)
                    assert {(key, driver) for driver in DRIVERS} <= self.in_use, (
                        "shown as prepared, and it is not in use"
                    )
                    assert (key, uid) in recorded, "shown as prepared, and a kill would lose which pod uses it"
        used = {name for names in self.running.values() for name in names}
        assert {name for _, name in self.node.claims_due(1e9)} == {name for _, name in known} - used


def test_what_a_driver_has_in_use_is_remembered_until_it_is_unprepared_and_pods_keep_their_claims(
    subtests: pytest.Subtests,
) -> None:
    for seed in range(40):
        with subtests.test(str(seed)):
            play = Play(seed)
            for _ in range(60):
                play.step()
            for uid in list(play.running):
                del play.running[uid]
                play.node.end_pod(uid)
            for _ in range(50):
                play.unprepare()
                play.node.release()
                play.save()
            assert (play.in_use, play.node.claims) == (set(), ())


def test_a_pod_that_is_not_listed_counts_as_ended_only_while_every_pod_is_known() -> None:
    node = ClaimsOfNode()
    part = Part(state=PartState.PREPARED)
    node.restored([Claim(uid="x", name="a", namespace="shop", pods={"u": Use(names=("a",))}, parts={"gpu": part})])
    assert node.claims_due(0.0) == []
    node.set_freshness(complete=True, stale=True)
    assert node.claims_due(0.0) == []
    node.set_freshness(complete=True, stale=False)
    assert node.claims_due(0.0) == [("shop", "a")]


def test_a_pod_that_is_to_run_again_before_its_claim_is_unprepared_keeps_it() -> None:
    node = ClaimsOfNode()
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    node.use("u", wanted("a"), allocated("a", ("gpu",)))
    node.prepared(("shop", "a"), "gpu", ())
    node.recorded(node.claims)
    node.end_pod("u")
    assert (node.claims_due(0.0), node.release()) == ([("shop", "a")], [])
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    assert (node.claims_due(0.0), node.pods_due(0.0), node.unread("u")) == ([], [], ())
    node.end_pod("u")
    node.unprepared(("shop", "a"), "gpu")
    assert (node.release(), node.claims, node.pods(), node.shown("u", 0.0)) == (["u"], (), set(), None)


def test_a_pod_that_names_a_claim_twice_has_it_by_both_names_and_needs_nothing_more() -> None:
    node = ClaimsOfNode()
    first, second = RequestedClaim(name="x", claim="a"), RequestedClaim(name="y", claim="a")
    node.set_pod(identity("u"), (first, second), starts=True)
    for requested in node.unread("u"):
        node.use("u", requested, allocated("a", ("gpu",)))
    assert {driver: [claim.name for claim in claims] for driver, claims in node.to_call("u").items()} == {"gpu": ["a"]}
    node.prepared(("shop", "a"), "gpu", ())
    node.recorded(node.claims)
    assert (node.unread("u"), node.pods_due(0.0)) == ((), [])
    item = node.shown("u", 0.0)
    assert item is not None and [(claim.name, claim.state) for claim in item.claims] == [
        ("x", ClaimState.PREPARED),
        ("y", ClaimState.PREPARED),
    ]


def test_failures_are_tried_again_later_and_later_and_at_once_when_a_driver_has_come() -> None:
    node = ClaimsOfNode()
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    waits = []
    now = 100.0
    for _ in range(9):
        assert node.pods_due(now) == ["u"]
        node.pod_failed("u", {"a": "no"}, now, now)
        waits.append(node.next_attempt(now) - now)
        now = node.next_attempt(now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    node.pod_failed("u", {"a": "no"}, now, now)
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    assert node.pods_due(now) == []
    node.set_pod(identity("u"), (wanted("a"), wanted("b")), starts=True)
    assert node.pods_due(now) == ["u"], "it needs something else now"
    node.pod_failed("u", {"a": "no"}, now, now)
    assert node.pods_due(now) == []
    node.use("u", wanted("a"), allocated("a"))
    node.retry({"other"})
    assert node.pods_due(now) == []
    node.retry({"gpu", "other"})
    assert node.pods_due(now) == ["u"]


def test_a_claim_that_is_not_unprepared_is_tried_again_at_once_when_its_driver_has_come() -> None:
    node = ClaimsOfNode()
    node.restored([Claim(uid="x", name="a", namespace="shop", parts={"gpu": Part(state=PartState.CALLED)})])
    assert node.claims_due(0.0) == [("shop", "a")]
    assert node.unprepare_failed(("shop", "a"), "no", 0.0, 0.0), "no pod shows it"
    assert not node.unprepare_failed(("shop", "a"), "no", 1.0, 1.0), "it is known"
    node.retry({"nic"})
    assert node.claims_due(1.0) == []
    node.retry({"gpu"})
    assert node.claims_due(1.0) == [("shop", "a")]


def test_a_pod_that_gets_a_claim_while_a_driver_fails_to_unprepare_it_ends_only_after_attempts_of_its_own() -> None:
    key, node = ("shop", "a"), ClaimsOfNode()
    node.set_freshness(complete=True, stale=False)
    node.restored([Claim(uid="x", name="a", namespace="shop", parts={"gpu": Part(state=PartState.CALLED)})])
    assert node.begin_unprepare(key, "gpu") is not None
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    node.use("u", wanted("a"), AllocatedClaim(uid="x", name="a", namespace="shop", drivers=("gpu",)))
    assert not node.unprepare_failed(key, "no", 0.0, 0.0)
    node.end_pod("u")
    item = node.shown("u", 5000.0)
    assert item is not None and ([claim.error for claim in item.claims], item.overdue) == ([""], False)
    assert (node.overdue(5000.0), node.claims_due(5000.0)) == ([], [key])


def test_a_pod_that_waits_for_the_name_of_another_claim_is_tried_at_once_when_that_claim_is_unprepared() -> None:
    key, node = ("shop", "a"), ClaimsOfNode()
    node.restored([Claim(uid="old", name="a", namespace="shop", parts={"gpu": Part(state=PartState.CALLED)})])
    for uid, claim in (("u", "a"), ("other", "b")):
        node.set_pod(identity(uid), (wanted(claim),), starts=True)
        node.pod_failed(uid, {claim: "no"}, 0.0, 0.0)
    with pytest.raises(ClaimError, match="old ResourceClaim with same name a"):
        node.use("u", wanted("a"), AllocatedClaim(uid="new", name="a", namespace="shop", drivers=("gpu",)))
    node.release()
    assert node.pods_due(0.5) == [], "the driver has not unprepared it"
    node.unprepared(key, "gpu")
    node.release()
    assert node.pods_due(0.5) == ["u"]


class Requested(tuple[RequestedClaim, ...]):
    """Counts how often somebody looks whether a pod requests claims."""

    looks = 0

    def __bool__(self) -> bool:
        Requested.looks += 1
        return super().__len__() > 0


def test_a_change_of_a_pod_looks_at_no_other_pod_where_none_has_claims() -> None:
    node = ClaimsOfNode()
    for number in range(100):
        node.set_pod(identity(f"pod{number}"), Requested(), starts=True)
    Requested.looks = 0
    node.set_pod(identity("new"), Requested(), starts=True)
    found = [node.has_pods]
    assert Requested.looks <= 1
    node.set_pod(identity("new"), (wanted("a"),), starts=True)
    found.append(node.has_pods)
    assert node.pods() == {"new"}
    node.set_pod(identity("new"), (), starts=True)
    assert [*found, node.has_pods] == [False, True, False]


def test_an_error_keeps_the_time_since_when_it_is_there() -> None:
    failures = Failures()
    failures.failed({"a": "one", "b": "two"}, 1.0, 11.0)
    failures.failed({"a": "one", "b": "other"}, 2.0, 12.0)
    assert failures.errors == {"a": ("one", 11.0), "b": ("other", 12.0)} and failures.began == 1.0


def test_a_pod_of_which_nothing_is_known_shows_its_claim_as_it_is() -> None:
    node = ClaimsOfNode()
    part = Part(state=PartState.PREPARED, devices=(Device(pool="p", device="d"),))
    node.restored([Claim(uid="x", name="a", namespace="shop", pods={"u": Use(names=("a",))}, parts={"gpu": part})])
    item = node.shown("u", 0.0)
    assert item is not None and [claim.state for claim in item.claims] == [ClaimState.PREPARED]
    assert [device.device for device in item.claims[0].devices] == ["d"]


def test_a_claim_whose_specifications_were_there_once_is_prepared_again_when_they_are_gone() -> None:
    node, key = ClaimsOfNode(), ("shop", "a")
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    node.use("u", wanted("a"), allocated("a"))
    device = Device(pool="p", device="d", cdi_devices=("e.com/gpu=0", "e.com/gpu=1"))
    for driver in DRIVERS:
        node.prepared(key, driver, (device,) if driver == "gpu" else ())
    node.recorded(node.claims)
    for devices in (set(), {"e.com/gpu=0"}):
        assert (node.set_specifications(devices), node.pods_due(0.0)) == ([], []), "they were never there"
    assert node.set_specifications({"e.com/gpu=0", "e.com/gpu=1", "e.com/nic=0"}) == []
    [(lost, driver)] = node.set_specifications({"e.com/gpu=0"})
    assert (lost.key, driver, node.pods_due(0.0), set(node.to_call("u"))) == (key, "gpu", ["u"], {"gpu"})
    node.prepared(key, "gpu", (device,))
    node.recorded(node.claims)
    assert (node.set_specifications(set()), node.pods_due(0.0)) == ([], []), "the driver does not write them here"


def test_specifications_of_a_claim_that_is_unprepared_are_not_missed() -> None:
    node, key = ClaimsOfNode(), ("shop", "a")
    node.set_pod(identity("u"), (wanted("a"),), starts=True)
    node.use("u", wanted("a"), allocated("a", ("gpu",)))
    node.prepared(key, "gpu", (Device(pool="p", device="d", cdi_devices=("e.com/gpu=0",)),))
    node.set_specifications({"e.com/gpu=0"})
    node.end_pod("u")
    assert node.set_specifications(set()) == []
    assert node.claims[0].parts["gpu"].state is PartState.PREPARED


TEXT = st.text(max_size=5)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
DEVICE = st.builds(Device, pool=TEXT, device=TEXT, share_id=TEXT, requests=TEXTS, cdi_devices=TEXTS)
PART = st.builds(
    Part, state=st.sampled_from(PartState), devices=st.lists(DEVICE, max_size=2).map(tuple), specified=st.booleans()
)
USE = st.builds(Use, names=TEXTS, containers=st.dictionaries(TEXT, TEXTS, max_size=2))
CLAIM = st.builds(
    Claim, uid=TEXT, name=TEXT, namespace=TEXT, pods=st.dictionaries(TEXT, USE, max_size=2),
    parts=st.dictionaries(TEXT, PART, max_size=2),
)  # fmt: skip


@pytest.mark.long
@given(st.lists(CLAIM, max_size=3).map(tuple))
def test_the_record_has_all_of_the_claims_and_another_boot_has_none_prepared(claims: tuple[Claim, ...]) -> None:
    record = orjson.loads(orjson.dumps(written_record(claims, "boot")))
    assert read_record(record, "boot") == claims
    for boot in ("another", ""):
        found = read_record(record, boot)
        states = [part.state for claim in found for part in claim.parts.values()]
        assert PartState.PREPARED not in states
        assert [claim.devices for claim in found] == [claim.devices for claim in claims]
