"""The Go kubelet's checkpoint of resource claims is read, and written byte for byte; its claims are those of the node
(node.md 4.14)."""

import json
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.volume.core.resource_claims.claim import Claim, Part, PartState, Use
from services.volume.core.resource_claims.claim_checkpoint import read_checkpoint, write_checkpoint
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from services.volume.core.resource_claims.dra_state import ClaimDevice, PreparedClaim, read_dra_state, write_dra_state
from services.volume.core.resource_claims.driver_checks import Device
from services.volume.core.resource_claims.pod_claims import EXTENDED, PodIdentity, RequestedClaim
from shared.go_checkpoints.checksums import MAX_CHECKPOINT_BYTES, CheckpointError, Fault

POD, OTHER_POD = "139cdb46-f989-4f17-9561-ca10cfb509a6", "7ba30a02-7a1a-4f0e-8a43-7a53bd3ae9ec"
ONE_DEVICE = (
    rb'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",'
    rb"\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\","
    rb"\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{"
    rb"\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\","
    rb'\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}",'
    rb'"Checksum":1656016162}'
)
# Lists without entries are null, as Go writes them; a device that is shared has a share.
TWO_CLAIMS = (
    rb'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",'
    rb"\"ClaimInfoStateList\":[{\"ClaimUID\":\"u1\",\"ClaimName\":\"a\",\"Namespace\":\"shop\",\"PodUIDs\":{"
    rb"\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{},\"7ba30a02-7a1a-4f0e-8a43-7a53bd3ae9ec\":{}},\"DriverState\":{"
    rb"\"gpu.example.com\":{\"Devices\":[{\"PoolName\":\"p\",\"DeviceName\":\"d\",\"ShareID\":\"s\","
    rb"\"RequestNames\":null,\"CDIDeviceIDs\":null}]},\"nic.example.com\":{\"Devices\":null}}},{\"ClaimUID\":\"u2\","
    rb"\"ClaimName\":\"b\",\"Namespace\":\"shop\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},"
    rb"\"DriverState\":{}}]}"
    rb'","Checksum":3938536120}'
)
NOTHING = (
    rb'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",'
    rb'\"ClaimInfoStateList\":null}","Checksum":4010664294}'
)
GOLDEN = {"one device": ONE_DEVICE, "two claims": TWO_CLAIMS, "no claim": NOTHING}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_checkpoint_is_written_as_it_was_read(name: str) -> None:
    assert write_checkpoint(read_checkpoint(GOLDEN[name])) == GOLDEN[name]
    assert write_dra_state(read_dra_state(GOLDEN[name])) == GOLDEN[name]


def test_a_claim_of_a_checkpoint_is_one_for_which_its_drivers_were_called() -> None:
    device = Device(
        pool="worker-1", device="dev-1", requests=("test request",), cdi_devices=("example.com/example=cdi-example",)
    )
    [claim] = read_checkpoint(ONE_DEVICE)
    assert claim == Claim(
        uid="067798be-454e-4be4-9047-1aa06aea63f7",
        name="example",
        namespace="default",
        pods={POD: Use()},
        parts={"test-driver.cdi.k8s.io": Part(state=PartState.CALLED, devices=(device,))},
    )
    assert not claim.is_prepared
    first, second = read_checkpoint(TWO_CLAIMS)
    assert first.parts["gpu.example.com"].devices == (Device(pool="p", device="d", share_id="s"),)
    assert first.parts["nic.example.com"] == Part(state=PartState.CALLED)
    assert (set(first.pods), set(second.pods)) == ({POD, OTHER_POD}, {POD})


def pod(uid: str, *requested: RequestedClaim) -> tuple[PodIdentity, tuple[RequestedClaim, ...]]:
    return PodIdentity(uid=uid, name="web", namespace="shop"), requested


@pytest.mark.parametrize("first", ["pod", "checkpoint"])
def test_the_claims_of_a_checkpoint_get_their_names_from_the_pod_and_are_not_read_again(first: str) -> None:
    node = ClaimsOfNode()
    containers = {"main": ("r",)}
    requested = (
        RequestedClaim(name="x", claim="a"),
        RequestedClaim(name="y", claim="a"),
        RequestedClaim(name=EXTENDED, claim="b", containers=containers),
    )
    identity, wanted = pod(POD, *requested)
    if first == "pod":
        node.set_pod(identity, wanted, starts=True)
    node.restored(read_checkpoint(TWO_CLAIMS))
    if first == "checkpoint":
        item = node.shown(POD, 0.0)
        assert item is not None and [claim.name for claim in item.claims] == ["/a", "/b"]
        node.set_pod(identity, wanted, starts=True)
    assert node.unread(POD) == ()
    item = node.shown(POD, 0.0)
    assert item is not None and [(claim.name, claim.claim) for claim in item.claims] == [
        ("x", "a"),
        ("y", "a"),
        (EXTENDED, "b"),
    ]
    assert item.claims[2].containers == containers
    assert set(node.to_call(POD)) == {"gpu.example.com", "nic.example.com"}


def test_a_claim_of_the_record_counts_before_one_of_the_checkpoint_with_its_name() -> None:
    node = ClaimsOfNode()
    known = Claim(uid="other", name="a", namespace="shop", pods={POD: Use(names=("x",))})
    node.restored([known])
    node.restored(read_checkpoint(TWO_CLAIMS))
    assert [(claim.name, claim.uid) for claim in node.claims] == [("a", "other"), ("b", "u2")]


def test_a_checkpoint_that_is_cut_short_is_not_json() -> None:
    for length in range(len(ONE_DEVICE)):
        with pytest.raises(CheckpointError) as raised:
            read_checkpoint(ONE_DEVICE[:length])
        assert raised.value.fault is Fault.NOT_JSON
        assert "\n" not in str(raised.value)


def test_another_value_has_another_checksum() -> None:
    with pytest.raises(CheckpointError, match="checkpoint is corrupted") as raised:
        read_checkpoint(ONE_DEVICE.replace(b"dev-1", b"dev-2", 1))
    assert raised.value.fault is Fault.WRONG_CHECKSUM


def with_data(text: str) -> bytes:
    return json.dumps({"Data": text, "Checksum": crc32(text.encode())}).encode()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"version":"v1","checksum":1}', "Data is not a string"),
        (b'{"Data":"{","Checksum":4217352203}', "checkpoint is corrupted"),
        (with_data("{"), "Data is not JSON"),
        (with_data('{"ClaimInfoStateList":7}'), "ClaimInfoStateList is not a list"),
        (
            with_data(json.loads(ONE_DEVICE)["Data"].replace("kubelet.k8s.io/v1", "kubelet.k8s.io/v2")),
            "holds a 'DRACheckpoint' of 'checkpoint.dra.kubelet.k8s.io/v2', and only DRACheckpoint of",
        ),
        (b" " * (MAX_CHECKPOINT_BYTES + 1), "the file is longer than 4 MiB"),
    ],
)
def test_a_form_of_another_version_is_named(content: bytes, what: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        read_checkpoint(content)
    assert str(raised.value).startswith(what)


ANY_VALUE = st.none() | st.booleans() | st.integers() | st.text()
KEYS = st.sampled_from(
    ["kind", "apiVersion", "ClaimInfoStateList", "ClaimUID", "PodUIDs", "DriverState", "Devices", "RequestNames"]
)


@pytest.mark.long
@given(st.recursive(ANY_VALUE, lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=4)))
def test_any_data_is_read_or_refused(data: Any) -> None:
    for content in (with_data(json.dumps(data)), json.dumps(data).encode()):
        try:
            read_checkpoint(content)
        except CheckpointError as error:
            assert "\n" not in str(error)


TEXT = st.text(max_size=5)
TEXTS = st.none() | st.lists(TEXT, max_size=2).map(tuple)
DEVICE = st.builds(ClaimDevice, pool=TEXT, device=TEXT, share_id=TEXT, requests=TEXTS, cdi_ids=TEXTS)
CLAIM = st.builds(
    PreparedClaim, uid=TEXT, name=TEXT, namespace=TEXT, pod_uids=st.frozensets(TEXT, max_size=2),
    drivers=st.dictionaries(TEXT, st.none() | st.lists(DEVICE, max_size=2).map(tuple), max_size=2),
)  # fmt: skip


@pytest.mark.long
@given(st.lists(CLAIM, max_size=3).map(tuple))
def test_every_checkpoint_is_read_as_it_was_written(claims: tuple[PreparedClaim, ...]) -> None:
    assert read_dra_state(write_dra_state(claims)) == claims
