"""What is read of an object that lacks any part of its metadata."""

import pytest

from shared.model import objects

EMPTY = [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"uid": None, "annotations": None, "labels": None}}]


@pytest.mark.parametrize("obj", EMPTY)
def test_metadata_that_is_absent_is_empty(obj: objects.Object) -> None:
    assert (objects.uid(obj), objects.name(obj), objects.namespace(obj)) == ("", "", "")
    assert (objects.annotations(obj), objects.labels(obj)) == ({}, {})


def test_a_pod_is_described_by_its_full_name_and_its_uid() -> None:
    pod: objects.Object = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"a": "b"}}}
    assert objects.describe(pod) == "web_shop(u1)"
    assert objects.labels(pod) == {"a": "b"}
