"""Mirror pods: what one looks like, which static pod has one, and when it is created, replaced or deleted."""

from typing import Any

import pytest

from bus.messages.podsync import AdmittedPod, PodState
from bus.messages.sources import DesiredPod, MirrorPod
from services.status.core.mirror_pod import MirrorStep, StaticPods, decide, mirror_pod, static_pods
from shared.model.frozen_copy import replace

KEY = "web-n1_default"
NODE = {"metadata": {"name": "n1", "uid": "node-1"}}


def static(uid: str = "h1") -> Any:
    annotations = {"kubernetes.io/config.hash": uid, "kubernetes.io/config.source": "file", "note": "x"}
    metadata = {"name": "web-n1", "namespace": "default", "uid": uid, "labels": {"app": "web"}}
    return {"metadata": {**metadata, "annotations": annotations}, "spec": {"nodeName": "n1"}, "status": {}}


def desired(uid: str = "h1") -> DesiredPod:
    return DesiredPod(uid=uid, source="file", pod=static(uid))


def taken(uid: str = "h1", state: PodState = PodState.SYNC, **fields: Any) -> AdmittedPod:
    return AdmittedPod(uid=uid, name="web-n1", namespace="default", state=state, source="file", **fields)


def mirror(config_hash: str = "h1", phase: str = "Running", **metadata: Any) -> MirrorPod:
    pod = {"metadata": {"ownerReferences": [{"uid": "node-1"}], **metadata}, "status": {"phase": phase}}
    return MirrorPod(uid="m1", name="web-n1", namespace="default", config_hash=config_hash, pod=pod)


WANTED = StaticPods(static(), "h1", kept=True)


def test_a_mirror_is_the_static_pod_owned_by_the_node() -> None:
    assert mirror_pod(static(), "h1", "n1", "node-1") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-n1",
            "namespace": "default",
            "labels": {"app": "web"},
            "annotations": {
                "kubernetes.io/config.hash": "h1",
                "kubernetes.io/config.mirror": "h1",
                "kubernetes.io/config.source": "file",
                "note": "x",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-1", "controller": True}
            ],
        },
        "spec": {"nodeName": "n1"},
    }


NO_PODS = StaticPods()
KEPT = StaticPods(kept=True)


def test_which_static_pod_has_the_mirror(subtests: pytest.Subtests) -> None:
    for manifests, admitted, shown, expected in [
        ([desired()], [taken()], None, WANTED),
        ([desired()], [], None, KEPT),
        ([desired()], [taken(state=PodState.TERMINATING)], None, WANTED),
        ([desired()], [taken(state=PodState.FINISHED)], None, KEPT),
        ([desired()], [taken(state=PodState.FINISHED, rejected="OutOfcpu")], None, WANTED),
        ([], [taken(state=PodState.TERMINATING)], mirror(), KEPT),
        ([], [taken(state=PodState.FINISHED)], mirror(), NO_PODS),
        ([], [], mirror(), NO_PODS),
        ([desired("h2")], [taken(state=PodState.TERMINATED), taken("h2")], mirror(), KEPT),
        (
            [desired("h2")],
            [taken(state=PodState.FINISHED), taken("h2")],
            mirror(),
            StaticPods(static("h2"), "h2", True),
        ),
        ([desired("h2"), desired("h1")], [taken("h1"), taken("h2")], None, WANTED),
        (
            [desired("h2"), desired("h1")],
            [taken("h1"), taken("h2")],
            mirror("h2"),
            StaticPods(static("h2"), "h2", True),
        ),
        ([replace(desired(), source="api")], [replace(taken(), source="api")], None, NO_PODS),
    ]:
        with subtests.test(f"{manifests!r:.80}"):
            assert static_pods(KEY, manifests, admitted, shown) == expected


def test_what_is_done(subtests: pytest.Subtests) -> None:
    for pods, shown, node, certain, step in [
        (WANTED, None, NODE, True, MirrorStep.CREATE),
        (WANTED, None, NODE, False, MirrorStep.CREATE),
        (WANTED, None, None, True, MirrorStep.NOTHING),
        (WANTED, None, {"metadata": {"uid": "node-1", "deletionTimestamp": "t"}}, True, MirrorStep.NOTHING),
        (WANTED, None, {"metadata": {"name": "n1"}}, True, MirrorStep.NOTHING),
        (WANTED, mirror(), NODE, True, MirrorStep.NOTHING),
        (WANTED, mirror("h0"), NODE, True, MirrorStep.REPLACE),
        (WANTED, mirror("h0"), NODE, False, MirrorStep.NOTHING),
        (WANTED, mirror(deletionTimestamp="t"), NODE, True, MirrorStep.REPLACE),
        (WANTED, mirror(), {"metadata": {"uid": "node-2"}}, True, MirrorStep.REPLACE),
        (WANTED, mirror("h0"), None, True, MirrorStep.NOTHING),
        (WANTED, mirror(phase="Failed"), NODE, True, MirrorStep.REPLACE),
        (KEPT, mirror("h0"), NODE, True, MirrorStep.NOTHING),
        (KEPT, None, NODE, True, MirrorStep.NOTHING),
        (NO_PODS, mirror(), NODE, True, MirrorStep.DELETE),
        (NO_PODS, mirror(), None, True, MirrorStep.DELETE),
        (NO_PODS, mirror(), NODE, False, MirrorStep.NOTHING),
        (NO_PODS, None, NODE, True, MirrorStep.NOTHING),
    ]:
        with subtests.test(f"{pods!r:.80}"):
            assert decide(pods, shown, node, {"phase": "Running"}, certain=certain) is step


def test_the_mirror_of_a_pod_that_ended_stays() -> None:
    assert decide(WANTED, mirror(phase="Failed"), NODE, {"phase": "Failed"}, certain=True) is MirrorStep.NOTHING
    assert decide(WANTED, mirror(phase="Failed"), NODE, {}, certain=True) is MirrorStep.NOTHING
