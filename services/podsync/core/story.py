"""Selects the events and instructions of a pod that become lines of its story (`shared.story`).
Pure: events and instructions in, lines without their time out. Keeps the last lines, so that a repeated line is written
once, and a pod that restarts for days has a story of its restarts and not of its relists.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.messages.podsync import AdmittedPod
from services.podsync.core.pod.call_results import ImagePulled, PartListed, PodListed
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
    Event,
    PodDesired,
    PodObserved,
    PodUndesired,
    ProbesChanged,
    VolumesChanged,
)
from services.podsync.core.pod.instructions import (
    Call,
    InspectImage,
    Instruction,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PublishAdmitted,
    PublishStatus,
    RecordEvent,
    RunPostStartHook,
    SetContainerCpus,
)
from shared.model.objects import Object, name, namespace
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, Sandbox
from shared.story.lines import Kind, Line

NANOSECONDS = 1e9
MAX_TEXT_CHARACTERS = 2000  # of an error or message
_QUIET = (LookAtPod, InspectImage, PreparePod, SetContainerCpus)  # written only when they fail
_OVER = ("finished", "terminated")


@dataclass
class _WrittenLines:
    """Has what was written of one pod last."""

    head: Line = field(default_factory=dict)
    opened: bool = False  # whether this process wrote a line of it
    restored: bool = False  # whether an earlier process wrote its first line
    pod: Object = field(default_factory=dict)
    deletion: Any = None
    state: tuple[str, str] = ("", "")
    waits_for: str = ""
    volumes: dict[str, tuple[str, str]] = field(default_factory=dict)
    sandboxes: dict[str, str] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    probes: dict[tuple[str, str], str] = field(default_factory=dict)
    status: tuple[str, bool] = ("", False)
    event: tuple[str, str, str] = ("", "", "")
    recorded: str = ""


class StoryLines:
    """Makes the lines of all pods. `boot`: podsync's start number; `machine_started`: it is the first process since the
    machine booted."""

    def __init__(self, boot: int, *, machine_started: bool = False) -> None:
        self._start: Line = {"what": Kind.START, "boot": boot} | ({"machine_started": True} if machine_started else {})
        self._written: defaultdict[str, _WrittenLines] = defaultdict(_WrittenLines)

    def head(self, uid: str) -> Line:
        """Return the first line of each file of the pod's story."""
        return self._written[uid].head

    def take_up(self, uid: str, *, name: str, namespace: str, source: str) -> None:
        """Continue the story of a pod of an earlier process."""
        written = self._written[uid]
        written.restored = True
        written.head.update({"what": Kind.POD, "uid": uid, "name": name, "namespace": namespace, "source": source})

    def forget(self, uid: str) -> None:
        """Drop what is kept of a pod that is gone."""
        self._written.pop(uid, None)

    def waits(self, uid: str, waits_for: str) -> list[Line]:
        """Return the lines for what the pod waits for now, "" = nothing."""
        written = self._written[uid]
        if waits_for == written.waits_for:
            return []
        written.waits_for = waits_for
        return self._opened(uid, [{"what": Kind.WAITS, "waits_for": waits_for}])

    def pulling(self, uid: str, pull: Mapping[str, Any]) -> list[Line]:
        """Return the lines for how far a pull is: the fields of an item of `pods.pulls`."""
        return self._opened(uid, [{"what": Kind.PULL, **{key: value for key, value in pull.items() if value}}])

    def describe(self, uid: str, what: Event | Instruction) -> list[Line]:
        """Return the lines of an event or an instruction."""
        lines = [line | ({"cause": what.cause} if what.cause else {}) for line in self._lines(uid, what)]
        return self._opened(uid, lines)

    def _opened(self, uid: str, lines: list[Line]) -> list[Line]:
        written = self._written[uid]
        if lines and not written.opened:
            written.opened = True
            return [self._start, *lines]
        return lines

    def _lines(self, uid: str, what: Event | Instruction) -> list[Line]:
        written = self._written[uid]
        match what:
            case PodDesired():
                return _desired(written, what)
            case PodUndesired():
                return [{"what": Kind.SEEN, "change": "gone"}]
            case VolumesChanged(volumes=volumes):
                now = {key: (str(v.state), v.error) for key, v in (volumes.volumes if volumes else {}).items()}
                changed = {key: value for key, value in now.items() if written.volumes.get(key) != value}
                written.volumes = now
                return [
                    {"what": Kind.VOLUME, "volume": key, "state": state, **({"error": _short(error)} if error else {})}
                    for key, (state, error) in changed.items()
                ]
            case PodObserved(observation=seen):
                there = {c.id for c in seen.containers}
                written.containers = {key: state for key, state in written.containers.items() if key in there}
                written.sandboxes = {s.id: written.sandboxes[s.id] for s in seen.sandboxes if s.id in written.sandboxes}
                return _seen(written, seen.sandboxes, seen.containers)
            case ProbesChanged(container_id=container_id, results=results) if results is not None:
                return _probed(written, container_id, results)
            case ProbesChanged(container_id=container_id):
                written.probes = {key: result for key, result in written.probes.items() if key[0] != container_id}
                return []
            case CallDone(call=call):
                return [*_done(call, what), *_looked(written, what)]
            case CallFailed(call=call):
                # The output of a hook is in the status alone: it may be a secret, and a story outlives its pod.
                text = what.description if isinstance(call, RunPostStartHook) else what.text
                outcome = {"text": _short(text)} if not what.interrupted else {"interrupted": True, "text": ""}
                return [{"what": Kind.FAILED, **_subject(call), **outcome}]
            case Call() if not isinstance(what, _QUIET):
                return [{"what": Kind.BEGUN, **_subject(what)}]
            case PublishAdmitted(published=published):
                return _admitted(written, published.admitted)
            case PublishStatus(status=status):
                return _status(written, status.status)
            case RecordEvent(event=event):
                entry = (event.reason, event.message, event.field_path)
                if entry == written.event:
                    return []
                written.event = entry
                container = event.field_path.partition("{")[2].rstrip("}")
                line = {"what": Kind.EVENT, "type": event.type, "reason": event.reason}
                return [line | {"message": _short(event.message)} | ({"container": container} if container else {})]
            case _:
                return []


def _desired(written: _WrittenLines, what: PodDesired) -> list[Line]:
    metadata = what.pod.get("metadata") or {}
    head = {"what": Kind.POD, "uid": what.uid, "name": name(what.pod), "namespace": namespace(what.pod)}
    written.head.update({**head, "source": what.source})
    deletion = (metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds"))
    wanted = {"spec": what.pod.get("spec"), "annotations": metadata.get("annotations")}
    line: Line = {"what": Kind.SEEN, "source": what.source}
    marked: list[Line] = []
    if what.recorded != written.recorded:
        written.recorded = what.recorded
        mark = {"change": "recorded", "recorded": what.recorded} if what.recorded else {"change": "confirmed"}
        marked = [line | mark]
    if deletion[0] is not None:
        if deletion == written.deletion:
            return marked
        written.deletion, written.pod = deletion, wanted
        return [*marked, line | {"change": "to be deleted", "grace": deletion[1]}]
    if wanted == written.pod:
        return marked
    change = "changed" if written.pod else "new"
    written.pod, first = wanted, not written.pod
    if first and written.restored:
        return marked
    return [*marked, line | {"change": change}]


def _admitted(written: _WrittenLines, admitted: AdmittedPod) -> list[Line]:
    now = (str(admitted.state), admitted.rejected)
    if now == written.state:
        return []
    written.state = now
    line: Line = {"what": Kind.STATE, "state": now[0]}
    if admitted.rejected:
        line["rejected"] = admitted.rejected
    if admitted.grace_seconds is not None and now[0] not in _OVER:
        line["grace"] = admitted.grace_seconds
    return [line]


def _status(written: _WrittenLines, status: Object) -> list[Line]:
    conditions = status.get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    now = (str(status.get("phase") or ""), ready)
    if now == written.status:
        return []
    written.status = now
    return [{"what": Kind.STATUS, "phase": now[0], "ready": ready}]


def _looked(written: _WrittenLines, done: CallDone) -> list[Line]:
    """Return the lines of sandboxes and containers that our own call listed; its own line has what it created."""
    match done.result:
        case PodListed(pod=pod):
            return _seen(written, pod.sandboxes, pod.containers)
        case PartListed(sandbox=sandbox, containers=containers):
            return _seen(written, (sandbox,) if sandbox else (), containers)
    return []


def _seen(written: _WrittenLines, sandboxes: tuple[Sandbox, ...], containers: tuple[Container, ...]) -> list[Line]:
    lines: list[Line] = []
    for sandbox in sandboxes:
        before, written.sandboxes[sandbox.id] = written.sandboxes.get(sandbox.id), str(sandbox.state)
        if before not in (None, str(sandbox.state)):
            lines.append({"what": Kind.SANDBOX, "attempt": sandbox.attempt, "state": str(sandbox.state)})
    for container in sorted(containers, key=lambda c: c.created_at):
        before, written.containers[container.id] = written.containers.get(container.id), str(container.state)
        if before == str(container.state) or container.state in (ContainerState.CREATED, ContainerState.RUNNING):
            continue  # the line of the start shows that it runs
        lines.append(_ended(container))
    return lines


def _ended(container: Container) -> Line:
    line: Line = {
        "what": Kind.CONTAINER,
        "container": container.name,
        "attempt": container.restart_count,
        "state": str(container.state),
        "id": container.id[:12],
    }
    if container.state is ContainerState.EXITED:
        line |= {"exit_code": container.exit_code, "reason": container.reason}
        line |= {"started": container.started_at / NANOSECONDS, "finished": container.finished_at / NANOSECONDS}
    return line


def _probed(written: _WrittenLines, container_id: str, results: Any) -> list[Line]:
    lines: list[Line] = []
    for kind in ("startup", "liveness", "readiness"):
        now, key = getattr(results, kind), (container_id, kind)
        before, written.probes[key] = written.probes.get(key, ""), now
        if now in ("", before):
            continue
        line: Line = {"what": Kind.PROBE, "container": results.container, "probe": kind, "result": now}
        if now == ProbeResult.FAILURE and results.failure:
            line["output"] = _short(results.failure)
        lines.append(line)
    return lines


def _done(call: Call, done: CallDone) -> list[Line]:
    if isinstance(call, _QUIET):
        return []
    line: Line = {"what": Kind.DONE, **_subject(call)}
    if isinstance(done.result, ImagePulled):
        line |= {"took": round(done.result.took, 3)} if done.result.took else {}
        line |= {"bytes": done.result.image.size} if done.result.image else {}
    return [line]


def _subject(call: Call) -> Line:
    line: Line = {"call": type(call).__name__}
    if isinstance(call, KillContainer):
        return line | {"container": call.stop.container, "grace": call.stop.grace_seconds}
    if isinstance(call, KillPod):
        return line | {"grace": max((stop.grace_seconds for stop in call.containers), default=0)}
    for key in ("container", "volume", "attempt", "image", "left"):
        value = getattr(call, key, None)
        if isinstance(value, str | int) and value != "":
            line[key] = value
    return line


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[:MAX_TEXT_CHARACTERS]}…"
