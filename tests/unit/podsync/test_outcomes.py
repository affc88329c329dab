"""The record after a container was created: one that pleg reported first, or that the pod has no more, is not added."""

from services.podsync.core.outcomes import succeeded
from services.podsync.core.pod.call_results import ContainerCreated
from services.podsync.core.pod.events import CallDone
from services.podsync.core.pod.instructions import CreateContainer
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.cri.interface import ImageStatus
from shared.model.runtime import ContainerState
from shared.podspec.hashing import container_hash
from tests.unit.podsync.play import Play, a_container, a_pod


def a_record() -> TrackedPod:
    """Of a pod whose only container, `c`, runs in attempt 0."""
    play = Play().wanting(a_pod())
    return play.core.tracked["u1"]


def after_creation(tracked: TrackedPod, container: str, container_id: str) -> TrackedPod:
    """The record once the runtime has created an instance with this id."""
    call = CreateContainer(
        uid="u1",
        container=container,
        attempt=1,
        spec_hash=container_hash(a_container(container)),
        sandbox_id="s",
        sandbox_attempt=0,
        image=ImageStatus(id="i", size=1),
        pod_ips=(),
    )
    created = ContainerCreated(container_id=container_id)
    done = CallDone(uid="u1", call=call, completed_at=tracked.observed.at + 1, result=created)
    return succeeded(tracked, done, tracked.observed.at + 1)


def test_a_created_container_is_the_newest_instance() -> None:
    tracked = a_record()
    after = after_creation(tracked, "c", "new")
    assert [(c.id, c.state) for c in after.instances[:1]] == [("new", ContainerState.CREATED)]
    assert after.instances[1:] == tracked.instances and after.observed.is_current


def test_a_created_container_that_pleg_has_reported_is_no_second_instance() -> None:
    tracked = a_record()
    after = after_creation(tracked, "c", tracked.instances[0].id)
    assert after.instances == tracked.instances and after.observed.is_current


def test_after_the_creation_of_a_container_that_the_pod_has_no_more_the_pod_is_observed_again() -> None:
    tracked = a_record()
    after = after_creation(tracked, "gone", "new")
    assert after.instances == tracked.instances and not after.observed.is_current
