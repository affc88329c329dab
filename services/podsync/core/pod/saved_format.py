"""Converts what is on disk of a pod, identity, `Saved`, `Attempts` and newest status, to one flat object and back.
Decides when a change must be saved at once, and which parts of a record count where others are not understood. Reads
and writes no file.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import to_builtins
from msgspec.structs import asdict, fields

from bus.messages.podsync import PodState
from services.podsync.core.pod.allocation import Allocation, PendingResize, ResizeInProgress
from services.podsync.core.pod.claim_status import claim_status
from services.podsync.core.pod.gated_fields import without_gated_fields, without_gated_status
from services.podsync.core.pod.placement_format import plain_placement, read_placement
from services.podsync.core.pod.progress import LastWritten
from services.podsync.core.pod.saved import (
    NOTHING_SAVED,
    Attempts,
    CrashBackoff,
    ImageBackoff,
    Saved,
    SavedContainer,
    ShutdownStop,
    with_containers,
)
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.quantity import is_quantity

_B = TypeVar("_B", CrashBackoff, ImageBackoff)
_Part = TypeVar("_Part", Saved, Attempts)

# Field -> its name in the checkpoint, where the names differ.
_NAMES: dict[type[Any], dict[str, str]] = {
    Saved: {},
    Attempts: {"sandbox": "sandbox_attempt", "containers": "attempts"},
}
# The entries of a saved resize.
_PENDING: dict[str, type | tuple[type, ...]] = {
    "generation": int,
    "decided": bool,
    "reason": str,
    "message": str,
    "since": (float, int),
}
_SHUTDOWN: dict[str, type | tuple[type, ...]] = {
    "boot": str,
    "since": (float, int),
    "grace_seconds": int,
    "stopped": bool,
}
_IN_PROGRESS: dict[str, type | tuple[type, ...]] = {"generation": int, "cgroup_written": bool, "error": str}
_FIELDS = {kind: [(f.name, names.get(f.name, f.name)) for f in fields(kind)] for kind, names in _NAMES.items()}


# For each of these fields the checkpoint has a mapping by container, without default values.
_OF_CONTAINERS = fields(SavedContainer)


def must_be_saved(tracked: TrackedPod) -> bool:
    """Return whether only podsync knows what changed since the newest save, as it does not with the object of a
    finished pod."""
    if tracked.last_written.saved is None:
        return True
    before = tracked.last_written.saved[0]
    if tracked.saved.state is PodState.FINISHED:
        before = replace(before, pod=tracked.saved.pod)
    return before is not tracked.saved and before != tracked.saved


def persisted(tracked: TrackedPod) -> dict[str, Any]:
    """Return the checkpoint record: identity, the fields of `Saved` and `Attempts` by their names, and `status`."""
    identity = {"uid": tracked.uid, "name": tracked.name, "namespace": tracked.namespace}
    return identity | _plain(tracked.saved) | _plain(tracked.attempts) | {"status": tracked.status}


def restore_all(
    checkpoint: Mapping[str, dict[str, Any]], gates_off: frozenset[str]
) -> tuple[list[TrackedPod], dict[str, str]]:
    """Return the pods of the records, without the fields whose feature gates are off now, and by UID the errors of
    those records that cannot be used."""
    pods, errors = [], {}
    for uid, data in checkpoint.items():
        try:
            tracked = restore(data)
            pod = without_gated_fields(tracked.saved.pod, gates_off)
            claims = without_gated_status(tracked.saved.claim_status, gates_off)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            errors[uid] = f"{type(error).__name__}: {error}"
            continue
        if pod is not tracked.saved.pod or claims is not tracked.saved.claim_status:
            tracked = replace(tracked, saved=replace(tracked.saved, pod=pod, claim_status=claims))
        pods.append(tracked)
    return pods, errors


def restore(data: dict[str, Any]) -> TrackedPod:
    """Return the record that `persisted` wrote. A field that is unknown is left out, and a missing one has its default.
    Raises KeyError, TypeError, ValueError or AttributeError where a value is of the wrong kind."""
    identity = {name: data[name] for name in ("uid", "name", "namespace")}
    known = persisted(TrackedPod(uid="", name="", namespace=""))
    entries = {"state": data["state"]} | {name: value for name, value in data.items() if name in known}
    for name, value in entries.items():
        if not isinstance(value, float | int if isinstance(known[name], float) else type(known[name])):
            raise TypeError(f"{name} is a {type(value).__name__}")
    entries["state"] = PodState(entries["state"])
    entries |= {name: tuple(entries.get(name, ())) for name in ("victims", "left_behind")}
    entries["containers"] = _containers(entries)
    entries["image_backoff"] = _backoffs(ImageBackoff, entries.get("image_backoff", {}))
    entries |= _resources(entries)
    entries["shutdown"] = _shutdown(entries)
    entries["placement"] = read_placement(entries.get("placement", {}))
    entries["claim_status"] = claim_status(entries.get("claim_status", {}))
    pre_stops = entries.get("pre_stops", {}).items()
    entries["pre_stops"] = {name: at for name, at in pre_stops if isinstance(at, float | int)}
    saved, attempts = _part(Saved, entries), _part(Attempts, entries)
    status = entries.get("status", {})
    written = LastWritten(saved=(saved, attempts))
    return TrackedPod(**identity, saved=saved, attempts=attempts, status=status, last_written=written, restored=True)


def not_after(saved: Saved, now: float) -> Saved:
    """Return the facts with no moment in the future; `now` is steady seconds."""
    pending = saved.pending_resize
    saved = replace(
        saved,
        terminating_since=min(saved.terminating_since, now),
        finished_at=min(saved.finished_at, now),
        active_since=min(saved.active_since, now),
        plugins_awaited_since=min(saved.plugins_awaited_since, now),
        pre_stops={instance: min(begun, now) for instance, begun in saved.pre_stops.items()},
        pending_resize=pending and replace(pending, since=min(pending.since, now)),
        shutdown=saved.shutdown and replace(saved.shutdown, since=min(saved.shutdown.since, now)),
        image_backoff={name: replace(b, updated=min(b.updated, now)) for name, b in saved.image_backoff.items()},
    )
    return with_containers(saved, lambda container: _container_not_after(container, now))


def _container_not_after(container: SavedContainer, now: float) -> SavedContainer:
    back_off = container.crash_backoff
    if back_off is None or back_off.updated <= now:
        return container
    return replace(container, crash_backoff=replace(back_off, updated=now))


def _plain(part: Saved | Attempts) -> dict[str, Any]:
    """Return the value's fields by their names in the checkpoint, as JSON has them."""
    plain = asdict(part)
    for field, name in _NAMES[type(part)].items():
        plain[name] = plain.pop(field)
    if isinstance(part, Saved):
        plain["state"] = str(part.state)
        plain["victims"], plain["left_behind"] = list(part.victims), list(part.left_behind)
        for name in ("allocation", "pending_resize", "resize", "shutdown"):
            plain[name] = to_builtins(plain[name]) if plain[name] is not None else {}
        plain["placement"] = plain_placement(part.placement)
        of_containers = plain.pop("containers")
        for of_container in _OF_CONTAINERS:
            values = {name: getattr(container, of_container.name) for name, container in of_containers.items()}
            plain[of_container.name] = {name: value for name, value in values.items() if value != of_container.default}
        for name in ("crash_backoff", "image_backoff"):
            plain[name] = {key: to_builtins(entry) for key, entry in plain[name].items()}
    return plain


def _resources(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return allocation and resize. An entry that is not understood is left out: a resize that the source lists is then
    decided again."""
    actuated = checkpoint.get("actuated", {})
    result: dict[str, Any] = {"allocation": None, "pending_resize": None, "resize": None}
    result["actuated"] = {name: resources for name, resources in actuated.items() if _are_resources(resources)}
    with suppress(KeyError, TypeError, ValueError):
        if allocation := checkpoint.get("allocation"):
            result["allocation"] = _allocation(allocation)
        if pending := checkpoint.get("pending_resize"):
            others = _known(_PENDING, pending)
            result["pending_resize"] = PendingResize(wanted=_allocation(pending["wanted"]), **others)
        if resize := checkpoint.get("resize"):
            result["resize"] = ResizeInProgress(**_known(_IN_PROGRESS, resize))
    return result


def _shutdown(checkpoint: dict[str, Any]) -> ShutdownStop | None:
    """Return how the pod is stopped for a shutdown; None where it is not, or where the entry is not understood: the pod
    then starts again, and is stopped again."""
    with suppress(TypeError):
        if stop := checkpoint.get("shutdown"):
            return ShutdownStop(**_known(_SHUTDOWN, stop))
    return None


def _allocation(saved: dict[str, Any]) -> Allocation:
    containers, pod = dict(saved["containers"]), dict(saved["pod"])
    if not all(map(_are_resources, (*containers.values(), pod))):
        raise TypeError("resources are no mapping of amounts")
    volumes = dict(saved.get("volumes") or {})
    if not all(map(is_quantity, volumes.values())):
        raise TypeError("a sizeLimit is no amount")
    return Allocation(containers=containers, pod=pod, volumes=volumes)


def _are_resources(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(kind) or {}, dict) for kind in ("requests", "limits"))


def _known(types: dict[str, type | tuple[type, ...]], saved: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of these names. Raises TypeError for an entry of another type."""
    known = {name: saved[name] for name in types if name in saved}
    if wrong := [name for name, value in known.items() if not isinstance(value, types[name])]:
        raise TypeError(f"{wrong[0]} has another type")
    return known


def _part(kind: type[_Part], entries: dict[str, Any]) -> _Part:
    return kind(**{field: entries[name] for field, name in _FIELDS[kind] if name in entries})


def _containers(checkpoint: dict[str, Any]) -> dict[str, SavedContainer]:
    """Return what is saved of containers by name, from the mappings of the checkpoint; an entry of another type is left
    out."""
    containers: dict[str, SavedContainer] = {}
    for field in _OF_CONTAINERS:
        entries = checkpoint.get(field.name, {})
        kind: type[Any] = type(field.default)
        if field.default is None:
            entries, kind = _backoffs(CrashBackoff, entries), CrashBackoff
        for name, value in entries.items():
            if isinstance(value, kind) and value != field.default:
                containers[name] = replace(containers.get(name, NOTHING_SAVED), **{field.name: value})
    return containers


def _backoffs(kind: type[_B], saved: dict[str, Any]) -> dict[str, _B]:
    """Return back-offs by name; an entry that is not understood is left out, and that back-off begins again."""
    types = {field.name: (float, int) if field.type is float else str for field in fields(kind)}
    backoffs: dict[str, _B] = {}
    for name, value in saved.items():
        known = {key: part for key, part in value.items() if key in types} if isinstance(value, dict) else {}
        if known.keys() == types.keys() and all(isinstance(part, types[key]) for key, part in known.items()):
            backoffs[name] = kind(**known)
    return backoffs
