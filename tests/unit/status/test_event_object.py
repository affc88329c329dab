"""The core/v1 Event: every field, its name, what a patch changes, and which refusals are dropped silently."""

import re

import pytest

from bus.messages.event import KubeEvent
from services.status.core.event_correlation import CorrelatedEvent
from services.status.core.event_object import (
    event_object,
    event_patch,
    identity_of,
    is_recorded,
    name_of,
    namespace_of,
    time_of,
)
from services.status.core.event_refusal import is_namespace_gone
from shared.kube.interface import ApiStatusError
from shared.model.frozen_copy import replace

EVENT = KubeEvent(
    type="Warning",
    reason="BackOff",
    message="Back-off",
    namespace="shop",
    name="web-0",
    uid="u",
    field_path="spec.containers{c}",
    resource_version="7",
    time="2026-01-02T03:04:05.678901Z",
)
NODE_EVENT = KubeEvent(type="Normal", reason="Starting", message="Starting kubelet.", kind="Node", name="n1", uid="n1")
WHEN = 1767323045.678901
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _known(count: int = 1, last: float = WHEN) -> CorrelatedEvent:
    return CorrelatedEvent("web-0.1", "Back-off", count=count, first_time=WHEN, last_time=last, is_spam=False)


def test_an_event_of_a_container() -> None:
    assert event_object(EVENT, _known(), "n1") == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web-0.1", "namespace": "shop"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "shop",
            "name": "web-0",
            "uid": "u",
            "apiVersion": "v1",
            "resourceVersion": "7",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "BackOff",
        "message": "Back-off",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        "type": "Warning",
        "reportingComponent": "kubelet",
        "reportingInstance": "n1",
    }


def test_an_event_of_the_node_is_kept_in_default_and_has_no_uid() -> None:
    body = event_object(NODE_EVENT, _known(), "n1")
    assert body["metadata"]["namespace"] == namespace_of(NODE_EVENT) == "default"
    assert body["involvedObject"] == {"kind": "Node", "name": "n1", "apiVersion": "v1"}


def test_a_patch_has_the_count_and_the_time() -> None:
    patch = event_patch(event_object(EVENT, _known(3, WHEN + 60), "n1"))
    assert patch == {"count": 3, "lastTimestamp": "2026-01-02T03:05:05Z", "message": "Back-off"}


def test_the_name_is_the_same_for_the_same_event_only() -> None:
    names = {
        name_of(event, identity_of(writer, key, event), WHEN)
        for writer, key, event in (
            ("podsync", "1", EVENT),
            ("podsync", "1", EVENT),
            ("podsync", "2", EVENT),
            ("pleg", "1", EVENT),
            ("podsync", "1", replace(EVENT, time="2026-01-02T03:04:05.678902Z")),
            ("podsync", "1", replace(EVENT, message="other")),
        )
    }
    assert len(names) == 5
    assert all(re.fullmatch(r"web-0\.[0-9a-f]{16}", name) for name in names)
    assert {int(name.partition(".")[2], 16) // 10**9 for name in names} == {int(WHEN)}


@pytest.mark.parametrize("name", ["", "Web", "web_0", "-web", "a..b", "w" * 250, "wéb", "\udcff", "web\n"])
def test_a_name_that_makes_no_object_name_is_replaced(name: str) -> None:
    event = replace(EVENT, name=name)
    made = name_of(event, identity_of("podsync", "1", event), WHEN)
    assert SUBDOMAIN.fullmatch(made) and len(made) == 36
    assert made == name_of(event, identity_of("podsync", "1", event), WHEN)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-01-02T03:04:05.678901Z", WHEN),
        ("2026-01-02T03:04:05Z", 1767323045.0),
        ("", 5.0),
        ("yesterday", 5.0),
        ("1901-01-01T00:00:00Z", 5.0),
        ("9999-12-31T23:59:59Z", 5.0),
    ],
)
def test_a_time_that_makes_no_sense_is_now(text: str, when: float) -> None:
    assert time_of(replace(EVENT, time=text), 5.0) == when


@pytest.mark.parametrize(
    ("path", "recorded"), [("spec.containers{c}", True), ("implicitly required container P", False)]
)
def test_the_sandboxes_own_container_has_no_events(path: str, recorded: bool) -> None:
    assert is_recorded(replace(EVENT, field_path=path)) is recorded


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ApiStatusError(404, "NotFound", 'namespaces "a" not found', details={"kind": "namespaces"}), True),
        (ApiStatusError(404, "NotFound", 'events "a" not found', details={"kind": "events"}), False),
        (ApiStatusError(403, "Forbidden", "", details={"causes": [{"reason": "NamespaceTerminating"}]}), True),
        (ApiStatusError(403, "Forbidden", "… in namespace a because it is being terminated"), True),
        (ApiStatusError(403, "Forbidden", "may not", details={"causes": [None, 1]}), False),
        (ApiStatusError(403, "Forbidden", "may not", details={"causes": 3}), False),
        (ApiStatusError(500, "InternalError", "because it is being terminated"), False),
    ],
)
def test_a_namespace_that_goes_away_is_nobodys_loss(error: ApiStatusError, gone: bool) -> None:
    assert is_namespace_gone(error) is gone
