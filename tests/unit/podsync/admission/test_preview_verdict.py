"""The preview of a verdict is the verdict that the same pod then gets, beside whatever pods there are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.events import NodeChanged
from shared.podspec.defaults import apply_defaults
from tests.unit.podsync.invariants import checkpoint_of
from tests.unit.podsync.play import Play
from tests.unit.podsync.pods import a_container

FACTS = MachineFacts(
    node_name="n1",
    labels={"disk": "ssd"},
    allocatable={"cpu": "1", "memory": "1Gi", "pods": "4", "ephemeral-storage": "10Gi"},
    kernel=(6, 1),
)
NODE = {"metadata": {"name": "n1", "labels": {"disk": "ssd"}}, "spec": {}, "status": {}}


@st.composite
def pods(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pods with few names, amounts and ports, so that they are in each other's way."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        requests = {
            "cpu": draw(st.sampled_from(["0", "300m", "600m", "2"])),
            "memory": draw(st.sampled_from(["0", "600Mi"])),
        }
        ports = [{"containerPort": 80, "hostPort": draw(st.sampled_from([80, 81]))}] if draw(st.booleans()) else []
        spec: dict[str, Any] = {
            "containers": [a_container("c", resources={"requests": requests}, ports=ports)],
            "priority": draw(st.sampled_from([0, 0, 5, 2_000_000_000])),
        }
        if draw(st.integers(0, 5)) == 0:
            spec["nodeSelector"] = {"disk": draw(st.sampled_from(["ssd", "tape"]))}
        metadata = {
            "name": draw(st.sampled_from(["a", "b", "c", "d"])),
            "namespace": "default",
            "uid": f"u{number}",
            "annotations": {"kubernetes.io/config.source": draw(st.sampled_from(["api", "api", "file"]))},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        apply_defaults(pod)
        found.append(pod)
    return found


@pytest.mark.long
@given(pods())
def test_the_preview_is_the_verdict_and_changes_no_record(wanted: list[dict[str, Any]]) -> None:
    play = Play(facts=FACTS, joins_cluster=True, listed=True)
    play.handle(NodeChanged(node=NODE))
    admissions = play.core.node_state.admissions
    for pod in wanted:
        uid, source = pod["metadata"]["uid"], pod["metadata"]["annotations"]["kubernetes.io/config.source"]
        before = checkpoint_of(play.core)
        preview = admissions.preview(pod, source)
        assert preview is not None and checkpoint_of(play.core) == before
        play.source = source
        play.want(pod)
        saved = play.core.tracked[uid].saved
        assert (preview.reason, preview.message) == (saved.rejected, saved.rejected_message)
        assert preview.victims == saved.victims[: len(preview.victims)]
        assert preview.allocation == saved.allocation


def test_before_the_facts_are_known_there_is_no_verdict() -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "default", "uid": "u"},
        "spec": {"containers": [a_container("c")]},
    }
    apply_defaults(pod)
    assert Play(facts=FACTS, runtime_reported=False).core.node_state.admissions.preview(pod, "file") is None
    play = Play(facts=FACTS, joins_cluster=True)
    admissions = play.core.node_state.admissions
    assert admissions.preview(pod, "api") is None, "the Node is not known"
    found = admissions.preview(
        {**pod, "metadata": {**pod["metadata"], "annotations": {"kubernetes.io/config.source": "file"}}}, "file"
    )
    assert found is not None and found.reason == "", "a static pod does not wait for it"
