"""Takes what comes from a source into the tracked pod: the object without its status, of which only the names of
resource claims are kept, changed images, resizes. A pod keeps its allocated resources; other resources that the source
lists are a pending resize.
"""

from typing import Any

from services.podsync.core.pod.allocation import PendingResize, allocation_of, as_last_shown, with_allocation
from services.podsync.core.pod.api_baseline import valid_status
from services.podsync.core.pod.claim_status import claim_status
from services.podsync.core.pod.saved import Pod, Saved
from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, Status, TrackedPod
from shared.model import objects
from shared.model.conditions import POD_CONDITIONS
from shared.model.frozen_copy import replace
from shared.model.runtime import RuntimePod
from shared.podspec.containers import every_container


def from_runtime(observation: RuntimePod) -> TrackedPod:
    """Return a pod of the runtime that no source lists and that has no record on disk: it can only be ended."""
    return TrackedPod(uid=observation.uid, name=observation.name, namespace=observation.namespace)


def from_desired(uid: str, source: str, pod: Pod) -> TrackedPod:
    """Return a new pod, whose status continues from the API server's, if there is one."""
    tracked = as_listed(TrackedPod(uid=uid, name=objects.name(pod), namespace=objects.namespace(pod)), source, pod)
    tracked = replace(tracked, status=dict(tracked.api_status))
    if (held := as_last_shown(tracked.saved.pod, tracked.status)) is not None:
        tracked = as_listed(replace(tracked, saved=replace(tracked.saved, allocation=held)), source, pod)
    start_time = str(tracked.status.get("startTime") or "")
    return replace(tracked, saved=replace(tracked.saved, start_time=start_time))


def is_replaced(other: TrackedPod, pod: Pod, source: str) -> bool:
    """Return whether `other` ends once this source lists the pod: a source lists one pod of a name at a time."""
    same_name = other.full_name == objects.full_name(pod) and other.saved.source == source
    return same_name or other.uid == objects.uid(pod)


def as_listed(tracked: TrackedPod, source: str, pod: Pod) -> TrackedPod:
    """Return the pod with what the source lists of the pod."""
    metadata = dict(pod.get("metadata") or {})
    metadata.pop("managedFields", None)
    resource_version = str(metadata.pop("resourceVersion", "") or "")
    api_status = valid_status(pod.get("status")) if source == "api" else {}
    claims = claim_status(pod.get("status")) if source == "api" else {}
    tracked = replace(tracked, resource_version=resource_version, api_status=api_status)
    wanted = {key: value for key, value in pod.items() if key != "status"} | {"metadata": metadata}
    allocated, pending = _as_allocated(tracked.saved, wanted)
    saved = tracked.saved
    if allocated != saved.pod:
        tracked = _with_changed_containers(tracked, allocated)
    else:
        allocated = saved.pod
    listed = (source, allocated, claims, pending)
    if listed != (saved.source, saved.pod, saved.claim_status, saved.pending_resize):
        saved = replace(saved, source=source, pod=allocated, claim_status=claims, pending_resize=pending)
        tracked = replace(tracked, saved=saved)
    return tracked


def is_listed_otherwise(before: TrackedPod, after: TrackedPod) -> bool:
    """Return whether `as_listed` changed what decisions depend on. Our own writes of the status, which come back, are
    no such change."""
    old, new = before.saved, after.saved
    if (old.source, old.pod, old.pending_resize) != (new.source, new.pod, new.pending_resize):
        return True
    if old.claim_status != new.claim_status:
        return True
    return _written_by_others(before) != _written_by_others(after)


def _as_allocated(saved: Saved, wanted: Pod) -> tuple[Pod, PendingResize | None]:
    """Return `wanted` with the allocated resources, and the resize to those that it lists. The decision about an
    earlier generation is shown until there is one about this generation."""
    if saved.allocation is None:
        return wanted, None
    allocated = with_allocation(wanted, saved.allocation)
    if allocated is wanted:
        return wanted, None
    number = (wanted.get("metadata") or {}).get("generation")
    generation, resources = number if isinstance(number, int) else 0, allocation_of(wanted)
    before = saved.pending_resize
    if before is None:
        return allocated, PendingResize(generation=generation, wanted=resources)
    if (before.generation, before.wanted) == (generation, resources):
        return allocated, before
    return allocated, replace(before, generation=generation, wanted=resources, decided=False)


def _with_changed_containers(tracked: TrackedPod, wanted: Pod) -> TrackedPod:
    """Return the pod as it is before its spec becomes `wanted`: the images of containers whose image changes are
    forgotten. With a new ephemeral container, which needs a log directory, directories are prepared again."""
    setup = tracked.setup
    if (wanted.get("spec") or {}).get("ephemeralContainers") != tracked.spec.get("ephemeralContainers"):
        setup = replace(setup, prepared=False)
    named = {spec.get("name"): spec.get("image") for _, spec in every_container(wanted)}
    changed = {
        str(spec.get("name"))
        for _, spec in every_container(tracked.saved.pod)
        if spec.get("image") != named.get(str(spec.get("name")))
    }
    return replace(
        tracked,
        setup=setup,
        starts={
            name: replace(progress, image=None, must_pull=False, retry_at=0.0) if name in changed else progress
            for name, progress in tracked.starts.items()
        },
    )


def _written_by_others(tracked: TrackedPod) -> tuple[Any, list[Status]]:
    """Return the parts of the API server's status that other writers may set: a terminal phase that is not ours, and
    foreign conditions."""
    phase, conditions = tracked.api_status.get("phase"), tracked.api_status.get("conditions") or ()
    foreign = [c for c in conditions if c.get("type") not in POD_CONDITIONS]
    return phase if phase in TERMINAL_PHASES and phase != tracked.saved.outcome else "", foreign
