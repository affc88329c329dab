"""The hash that kubelets of the time of 1.20 wrote: values taken from containers that such a kubelet started."""

import tracemalloc
from typing import Any

import pytest

from shared.podspec import earlier_hash
from shared.podspec.earlier_hash import earlier_container_hash, is_hash_of
from shared.podspec.hashing import container_hash

PLAIN = {
    "name": "c",
    "image": "localhost/bulkhead/busybox:1",
    "command": ["sh", "-c", "exec sleep 1000000"],
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"env": []}, True),
        ({"stdin": False}, True),
        ({"resizePolicy": [{"resourceName": "cpu"}]}, True),  # a field that was not known then
        ({"env": [{"name": "A"}]}, False),
        ({"securityContext": {}}, False),  # an empty object is there, an empty list is not
        ({"image": "localhost/bulkhead/busybox:2"}, False),
        ({"resources": {"limits": {"cpu": "1"}}}, False),
    ],
)
def test_what_is_empty_is_left_out_and_what_is_not_counts(change: dict[str, Any], same: bool) -> None:
    assert (earlier_container_hash(PLAIN | change) == earlier_container_hash(PLAIN)) is same


def test_amounts_are_hashed_in_their_canonical_form_whatever_the_order() -> None:
    one = PLAIN | {"resources": {"limits": {"memory": "33554432", "cpu": "0.1"}}}
    other = PLAIN | {"resources": {"limits": {"cpu": "100m", "memory": "33554432"}}}
    assert earlier_container_hash(one) == earlier_container_hash(other)


def test_either_hash_is_recognised_and_no_other() -> None:
    assert is_hash_of(PLAIN, earlier_container_hash(PLAIN))
    assert is_hash_of(PLAIN, container_hash(PLAIN))
    assert is_hash_of(PLAIN, "")  # the runtime has none
    assert not is_hash_of(PLAIN, "deadbeef")


@pytest.mark.long
def test_what_is_remembered_of_containers_does_not_grow_with_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_hash, "fnv32a", len)  # the real one takes a microsecond for each byte
    tracemalloc.start()
    try:
        for number in range(530):
            earlier_container_hash(PLAIN | {"args": [f"{number} {'x' * 800}"]})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        earlier_hash._hashes.clear()
    assert kept < 250_000  # bytes; the texts of 512 containers are more than 600 000
