"""Forms the answer of `bulkhead what-if` about one pod, as data and as text. Pure."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from bus.messages.pod_preview import PodPreview, PreviewedContainer, PreviewedImage
from bus.messages.podsync import NumaMemory
from services.cli.what_if.candidates import Candidate
from services.cli.what_if.claims import PreviewedClaim
from shared.model.cpu_list import write_cpus
from shared.podspec.support import Effect, Unsupported
from shared.text.byte_size import byte_size
from shared.text.plain_text import plain


class Verdict(StrEnum):
    """What becomes of a pod."""

    ADMITTED = "admitted"
    REJECTED = "rejected"
    INVALID = "invalid"  # the API server, or sources, refuses the document
    UNDECIDED = "undecided"  # admission waits for something that is not known yet, such as the Node


class Reference(Struct, frozen=True, kw_only=True):
    """A Secret, ConfigMap or claim that the pod names. `state`: present, absent, given (in the files) or not known."""

    kind: str
    namespace: str
    name: str
    state: str
    optional: bool = False


class Answer(Struct, frozen=True, kw_only=True):
    """The answer about one pod. `preview`: None = the pod is invalid. `unsupported`: its fields that this agent does
    not support; `drivers`: the DRA drivers of the node, None = not known."""

    candidate: Candidate
    preview: PodPreview | None = None
    references: tuple[Reference, ...] = ()
    claims: tuple[PreviewedClaim, ...] = ()
    drivers: tuple[str, ...] | None = None
    unsupported: tuple[Unsupported, ...] = ()
    listening: frozenset[tuple[str, int]] = frozenset()  # protocol and port of the sockets of the machine

    @property
    def verdict(self) -> Verdict:
        """What becomes of the pod."""
        if self.preview is None:
            return Verdict.INVALID
        if self.preview.waits_for:
            return Verdict.UNDECIDED
        return Verdict.REJECTED if self.preview.reason else Verdict.ADMITTED

    @property
    def obstacles(self) -> list[str]:
        """What would keep the pod from running once it is admitted, one line each."""
        if self.preview is None:
            return []
        found = list(self.preview.problems)
        found += [f"{_holder(one)}: {one.problem}" for one in self.preview.images if one.problem]
        found += [f"container {one.name}: {one.problem}" for one in self.preview.containers if one.problem]
        found += [
            f"{one.kind} {one.namespace}/{one.name} is absent"
            for one in self.references
            if one.state == "absent" and not one.optional
        ]
        found += [f"resource claim {one.name}: {one.problem}" for one in self.claims if one.problem]
        found += [_unsupported(one) for one in self.unsupported if one.effect is Effect.WAITS]
        return found

    @property
    def data(self) -> dict[str, Any]:
        """The answer as JSON data."""
        found, preview = self.candidate, self.preview
        about = {} if preview is None else to_builtins(preview)
        about.pop("problems", None)
        return {
            "namespace": found.namespace,
            "name": found.name,
            "file": found.file,
            "owner": found.owner,
            "source": found.source,
            "verdict": str(self.verdict),
            "reason": about.pop("reason", "Invalid"),
            "message": about.pop("message", found.invalid),
            "obstacles": self.obstacles,
            **about,
            "unsupported": [to_builtins(one) for one in self.unsupported],
            "references": [to_builtins(one) for one in self.references],
            "claims": [to_builtins(one) for one in self.claims],
            "notes": [] if preview is None else list(_notes(self, preview)),
        }


def lines(answer: Answer) -> list[str]:
    """Return the answer as text, without control characters."""
    return [plain(line) for line in _lines(answer)]


def _lines(answer: Answer) -> Iterator[str]:
    found, preview = answer.candidate, answer.preview
    template = f" (the template of {found.owner})" if found.owner else ""
    name = f"pod {found.namespace}/{found.name}{template}"
    if preview is None:
        yield f"{name}: not admitted: {found.invalid}"
        return
    yield f"{name}: {_verdict(answer, preview)}"
    if preview.message:
        yield f"  {preview.message.strip()}"
    for one in preview.preempted:
        yield f"  preempts {one.namespace}/{one.name} ({one.uid})"
    yield from (f"  would not run: {line}" for line in answer.obstacles)
    yield from (f"  not supported: {_unsupported(one)}" for one in answer.unsupported if one.effect is Effect.REJECTED)
    yield from (f"  note: {_unsupported(one)}" for one in answer.unsupported if one.effect is Effect.WITHOUT)
    yield from (f"  note: {line}" for line in _notes(answer, preview))
    yield f"  QoS class  {preview.qos_class}"
    if preview.cgroup:
        yield f"  cgroup     {preview.cgroup}"
        files = preview.cgroup_files.items()
        yield from (f"    {file} {text}" for file, text in files if text != "0" or not file.startswith("hugetlb"))
    if preview.pod_cpus:
        yield f"  CPUs {preview.pod_cpus} for its containers alone"
    yield from (f"  {_numa_memory(block)}" for block in preview.pod_memory)
    yield "  images"
    yield from (f"    {_image(one)}" for one in preview.images)
    for container in preview.containers:
        yield from _container(container)
    if answer.claims:
        yield "  resource claims"
        for claim in answer.claims:
            devices = f", {', '.join(claim.devices)}" if claim.devices else ""
            yield f"    {claim.name}: {claim.kind} {found.namespace}/{claim.object}: {claim.state}{devices}"
    if answer.references:
        yield "  references"
        for reference in answer.references:
            optional = ", optional" if reference.optional else ""
            yield f"    {reference.kind} {reference.namespace}/{reference.name}: {reference.state}{optional}"


def _verdict(answer: Answer, preview: PodPreview) -> str:
    match answer.verdict:
        case Verdict.UNDECIDED:
            return f"not decided yet: admission waits for {preview.waits_for}"
        case Verdict.REJECTED:
            return f"not admitted: {preview.reason}"
    return "admitted, but it would not run" if answer.obstacles else "admitted"


def _notes(answer: Answer, preview: PodPreview) -> Iterator[str]:
    yield from answer.candidate.notes
    if preview.pressures:
        yield f"the node has {', '.join(preview.pressures)}"
    if answer.candidate.source == "api":
        yield from (f"it does not tolerate the taint {taint}" for taint in preview.taints)
    if answer.claims and answer.drivers:
        yield f"DRA drivers that prepare resource claims on this node: {', '.join(answer.drivers)}"
    for port in preview.host_ports:
        address = f"{port.ip}:{port.port}" if port.ip else str(port.port)
        taken = f" is taken by {', '.join(port.pods)}" if port.pods else " is used by no other pod"
        yield f"port {address}/{port.protocol} of the node{taken}"
        if not port.pods and (port.protocol, port.port) in answer.listening:
            yield f"port {address}/{port.protocol} of the node: a process of the machine listens on it"


def _unsupported(one: Unsupported) -> str:
    return f"{one.field}: {one.consequence}"


def _holder(image: PreviewedImage) -> str:
    return f"container {image.container}" if image.container else f"volume {image.volume}"


def _image(image: PreviewedImage) -> str:
    state = {True: "present", False: "missing", None: "not known whether present"}[image.present]
    if image.policy == "Always" or (image.present is False and image.policy == "IfNotPresent"):
        state += ", is pulled"
    if image.providers:
        state += f" with credentials of {', '.join(image.providers)}"
    return f"{image.image} for {_holder(image)}: {state} ({image.policy})"


def _numa_memory(block: NumaMemory) -> str:
    return f"{block.kind} of NUMA nodes {write_cpus(block.nodes)} alone: {byte_size(block.size)}"


def _container(container: PreviewedContainer) -> Iterator[str]:
    kind = "" if container.kind == "regular" else f" ({container.kind})"
    shown = dict(container.resources)
    if "cpu_quota" not in shown:
        shown.pop("cpu_period", None)
    numbers = "".join(f", {name} {number}" for name, number in shown.items())
    yield f"  container {container.name}{kind}: oom_score_adj {container.oom_score_adj}{numbers}"
    if container.cpus:
        yield f"    CPUs {container.cpus} alone"
    if container.pool_cpus:
        yield f"    CPUs {container.pool_cpus}, shared with containers of its pod alone"
    yield from (f"    {_numa_memory(block)}" for block in container.memory)
    for each in container.devices:
        yield f"    {each.resource}: {', '.join(each.ids)}"
    for mount in container.mounts:
        of = f"{mount.kind} {mount.volume}" if mount.volume else "the agent's file"
        way = " (read-only)" if mount.read_only else ""
        yield f"    {mount.container_path}{way}: {of}" + (f", {mount.host_path}" if mount.host_path else "")
