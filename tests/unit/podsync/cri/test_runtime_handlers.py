"""The features of a pod's runtime handler, as the runtime reports them."""

import pytest

from bus.messages.pleg import RuntimeHandler
from services.podsync.core.cri.runtime_handlers import for_handler, needs_handler_features
from services.podsync.core.node.node_facts import NodeFacts
from tests.unit.podsync.cri.container_messages import a_pod

FACTS = NodeFacts(node_name="n")
REPORTED = (
    RuntimeHandler(name="", recursive_read_only_mounts=True),
    RuntimeHandler(name="kata", user_namespaces=True),
)


@pytest.mark.parametrize(
    ("handler", "users", "read_only"), [("", False, True), ("kata", True, False), ("not-reported", False, False)]
)
def test_a_handler_has_the_features_that_the_runtime_reports(handler: str, users: bool, read_only: bool) -> None:
    facts = for_handler(FACTS, REPORTED, handler)
    assert (facts.runtime_handler, facts.user_namespaces, facts.recursive_read_only) == (handler, users, read_only)


def test_a_runtime_that_reports_nothing_has_no_features() -> None:
    facts = for_handler(FACTS, None, "")
    assert not facts.user_namespaces
    assert not facts.recursive_read_only


def test_only_pods_that_want_such_things_need_to_know() -> None:
    mount = {"name": "v", "mountPath": "/v"}
    read_only = {**mount, "readOnly": True, "recursiveReadOnly": "IfPossible"}
    assert not needs_handler_features(a_pod({"volumeMounts": [mount]}, hostUsers=True))
    assert needs_handler_features(a_pod(hostUsers=False))
    assert needs_handler_features(a_pod({"volumeMounts": [mount, read_only]}))
    assert needs_handler_features(a_pod(initContainers=[{"name": "i", "image": "i:1", "volumeMounts": [read_only]}]))
