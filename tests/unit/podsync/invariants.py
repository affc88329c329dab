"""What holds of podsync's core after every event."""

from bus.messages.podsync import PodState
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.saved_format import persisted
from shared.model.objects import Object


def checkpoint_of(core: PodSync) -> dict[str, Object]:
    """Return what the checkpoint has of every pod, by UID, as the constructor of `PodSync` takes it."""
    return {uid: persisted(tracked) for uid, tracked in core.tracked.items()}


def check_invariants(core: PodSync) -> None:
    """Fail where an invariant is broken."""
    started: dict[str, str] = {}
    for uid, tracked in core.tracked.items():
        assert uid == tracked.uid
        assert tracked.uid not in core.node_state.listed.untracked
        if tracked.saved.state is PodState.SYNC:
            assert not tracked.saved.deleted, f"{tracked.description} is deleted and not terminating"
        is_over = tracked.saved.state is PodState.TERMINATED
        if tracked.saved.state is PodState.FINISHED and tracked.call is None:
            is_over = core.node_state.admissions.sources_complete
        if is_over and tracked.observed.is_current:
            assert not tracked.alive, f"{tracked.description} is {tracked.saved.state} with running containers"
        if tracked.saved.state is PodState.SYNC and tracked.instances and tracked.is_static:
            other = started.setdefault(tracked.full_name, uid)
            assert other == uid, f"two pods run as {tracked.full_name}"
        per_attempt = [(c.name, c.attempt, c.sandbox_id) for c in tracked.instances]
        assert len(per_attempt) == len(set(per_attempt)), f"{tracked.description}: two containers of one attempt"
