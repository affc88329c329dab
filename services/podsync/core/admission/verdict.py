"""Decides whether this node admits a pod (pods.md 3).

The verdict is saved with the pod's record, so that a restart never rejects a running pod.
"""

from msgspec import Struct

from services.podsync.core.admission.device_wait import awaited_plugins
from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.admission.placed import NONE_PLACED, Placed, place_beside
from services.podsync.core.admission.predicates import PredicateFailure, predicate_failures
from services.podsync.core.admission.preemption import NoVictimsError, choose_victims
from services.podsync.core.admission.sysctls import refusal
from services.podsync.core.admission.taints import tolerates
from services.podsync.core.admission.taken import Taken
from services.podsync.core.placement.device_policy import PreferenceNeededError
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from services.podsync.core.pod.allocation import Allocation, allocation_of
from services.podsync.core.pod.claim_status import without_claimed_resources
from services.podsync.core.pod.device_need import DeviceNeed
from services.podsync.core.pod.gated_fields import (
    POD_LEVEL_RESOURCES,
    RESTART_ALL,
    has_bind_mount_options,
    lacks_restart_all,
)
from shared.model.frozen_copy import replace
from shared.model.objects import Object, annotations, uid
from shared.podspec.gated import BIND_MOUNT_OPTIONS
from shared.podspec.pod_source import is_critical
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import has_pod_level_resources
from shared.podspec.support import oversize
from shared.version import is_since

NODE_SHUTDOWN = "NodeShutdown"  # the reason of a rejection while the machine shuts down
_MEMORY_PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


class Verdict(Struct, frozen=True, kw_only=True):
    """Has the decision on a pod: `reason` "" = admitted, with this allocation."""

    reason: str = ""
    message: str = ""
    detail: str = ""  # what the message does not say: it is in the event and in what-if, not in the pod's status
    ask_for_node: bool = False  # rejected only because of the node's labels: the Node is read again first
    victims: tuple[str, ...] = ()  # UIDs of pods to preempt for this one
    lacking: str = ""  # the first resource for which they are preempted
    allocation: Allocation | None = None  # None = rejected
    placement: PodPlacement = NOT_PLACED
    awaited: tuple[str, ...] = ()  # UIDs of pods that are to end and have CPUs or devices of the placement
    need: DeviceNeed | None = None  # there is no verdict yet: this is needed of device plugins first

    @property
    def explanation(self) -> str:
        """The message with its detail."""
        return f"{self.message}: {self.detail}" if self.detail else self.message


def admit(
    pod: Object,
    phase: str,
    view: NodeView,
    others: Taken,
    placed: Placed = NONE_PLACED,
    *,
    placement: PodPlacement | None = None,
) -> Verdict:
    """Decide whether to admit a pod, with the kubelet's checks in its order: the first failure counts. `pod`: of its
    status only what names its resource claims counts; `phase`: the pod's phase in the API server, "" = none; `others`:
    what the pods on the node take, without this one; `placed`: their CPUs, NUMA memory and devices; `placement`: what
    the pod has of these already, None = it is placed now."""
    verdict = _check_all(pod, phase, view, others, placed, placement)
    if view.shuts_down and not verdict.reason:
        return Verdict(reason=NODE_SHUTDOWN, message="Pod was rejected as the node is shutting down.")
    return verdict


def _check_all(
    pod: Object, phase: str, view: NodeView, others: Taken, placed: Placed, placement: PodPlacement | None
) -> Verdict:
    taking = without_claimed_resources(pod)
    for verdict in (_check_size(pod), _check_pressure(pod, view), _check_sysctls(pod, view)):
        if verdict.reason:
            return verdict
    if awaited := awaited_plugins(taking, view, placement):
        return Verdict(need=DeviceNeed(awaited=awaited))
    given = _place(taking, view, placed) if placement is None else Verdict(placement=placement)
    for verdict in (given, _check_platform(pod, view)):
        if verdict.reason or verdict.need is not None:
            return verdict
    verdict = _check_fit(taking, _with_room_for_devices(view, given.placement), others)
    if verdict.reason:
        return verdict
    if phase in ("", "Pending") and _needs_apparmor(pod) and not view.facts.apparmor:
        return Verdict(reason="AppArmor", message="Cannot enforce AppArmor: AppArmor is not enabled on the host")
    unsupported = _check_features(pod, view)
    if unsupported.reason:
        return unsupported
    return Verdict(
        victims=verdict.victims,
        lacking=verdict.lacking,
        allocation=allocation_of(pod),
        placement=given.placement,
        awaited=given.awaited,
    )


def _check_size(pod: Object) -> Verdict:
    """Reject a pod that is too large: its status names each of its containers and is computed at each of its events,
    and each Secret and ConfigMap is read, so a pod of the API server's maximum size would delay every other pod."""
    if what := oversize(pod):
        text = f"Pod requires node features that are not available: {what}"
        return Verdict(reason="PodFeatureUnsupported", message=text)
    return Verdict()


def _check_features(pod: Object, view: NodeView) -> Verdict:
    """Reject a pod with features that are missing here, or whose gate is off: it would run wrongly."""
    off = view.facts.gates_off
    if POD_LEVEL_RESOURCES in off and has_pod_level_resources(pod):
        return Verdict(reason="PodLevelResourcesNotSupported", message="PodLevelResources feature gate is disabled")
    lacking = [RESTART_ALL] if lacks_restart_all(pod, off) else []
    heeded = view.mount_options and view.facts.feature_gates.get(BIND_MOUNT_OPTIONS)
    if is_since(view.facts.release, "1.37") and not heeded and has_bind_mount_options(pod):
        lacking.append(BIND_MOUNT_OPTIONS)
    if not lacking:
        return Verdict()
    text = f"Pod requires node features that are not available: {', '.join(lacking)}"
    return Verdict(reason="PodFeatureUnsupported", message=text)


def _check_pressure(pod: Object, view: NodeView) -> Verdict:
    """Reject pods under pressure, but no critical ones; under memory pressure alone only BestEffort ones."""
    if not view.pressures or is_critical(pod):
        return Verdict()
    modest = qos_class(pod) is not QosClass.BEST_EFFORT or tolerates(pod, _MEMORY_PRESSURE)
    if view.pressures == ("MemoryPressure",) and modest:
        return Verdict()
    return Verdict(reason="Evicted", message=f"The node had condition: [{' '.join(view.pressures)}]. ")


def _check_sysctls(pod: Object, view: NodeView) -> Verdict:
    text = refusal(pod, view.facts.kernel, view.facts.allowed_unsafe_sysctls, view.facts.release)
    return Verdict(reason="SysctlForbidden", message=text) if text else Verdict()


def _place(pod: Object, view: NodeView, placed: Placed) -> Verdict:
    """Place the pod, or reject it where its CPUs, NUMA memory or devices are not there."""
    placer = view.facts.placer
    if placer is None or not placer.concerns(pod, view.plugins):
        return Verdict()
    try:
        placement, awaited = place_beside(pod, placer, placed, view.plugins)
    except PreferenceNeededError as needed:
        return Verdict(need=DeviceNeed(question=needed.question))
    except PlacementError as error:
        return Verdict(reason=error.reason, message=str(error), detail=error.detail)
    return Verdict(placement=placement, awaited=awaited)


def _check_platform(pod: Object, view: NodeView) -> Verdict:
    spec = pod.get("spec") or {}
    label = ((pod.get("metadata") or {}).get("labels") or {}).get("kubernetes.io/os")
    # As the kubelet, this compares the pod's own label.
    if label is not None and label != view.labels.get("kubernetes.io/os"):
        return Verdict(
            reason="PodOSSelectorNodeLabelDoesNotMatch",
            message="Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if (spec.get("os") or {}).get("name", "linux") != "linux":
        return Verdict(reason="PodOSNotSupported", message="Failed to admit pod as the OS field doesn't match node OS")
    strict = (spec.get("securityContext") or {}).get("supplementalGroupsPolicy") == "Strict"
    if strict and not view.supplemental_groups_policy:
        return Verdict(
            reason="SupplementalGroupsPolicyNotSupported",
            message="SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    return Verdict()


def _check_fit(pod: Object, view: NodeView, others: Taken) -> Verdict:
    failures = predicate_failures(pod, view, others)
    if not failures:
        return Verdict()
    first = failures[0]
    # Preemption may solve a lack of room, so another failure is reported before it.
    if view.preempts and is_critical(pod):
        others_than_room = [failure for failure in failures if not failure.resource]
        if not others_than_room:
            return _make_room(pod, failures, others)
        first = others_than_room[0]
    only_labels = [failure.reason for failure in failures] == ["NodeAffinity"]
    return Verdict(reason=first.reason, message=first.message, ask_for_node=only_labels)


def _with_room_for_devices(view: NodeView, placement: PodPlacement) -> NodeView:
    """Return the view without the resources of the devices that the pod has, and with nothing of those that were
    dropped: what the Node shows of them follows the plugins later, and may be less than what pods have (node.md
    4.15)."""
    given = {of.resource for container in placement.containers.values() for of in container.devices}
    dropped = {name: "0" for name, resource in view.plugins.resources.items() if resource.dropped}
    if not given and not dropped:
        return view
    amounts = {**view.allocatable, **dropped}
    return replace(view, allocatable={name: amount for name, amount in amounts.items() if name not in given})


def _make_room(pod: Object, lacks: list[PredicateFailure], others: Taken) -> Verdict:
    own = uid(pod)
    candidates = [other for other_uid, other in others.pods.items() if other_uid != own]
    try:
        victims = choose_victims(pod, candidates, {lack.resource: lack.lacking for lack in lacks})
    except NoVictimsError as error:
        what = f"preemption: error finding a set of pods to preempt: {error}"
        text = f"Unexpected error while attempting to recover from admission failure: {what}"
        return Verdict(reason="UnexpectedAdmissionError", message=text)
    return Verdict(victims=victims, lacking=lacks[0].resource)


def _needs_apparmor(pod: Object) -> bool:
    """Return whether a container is to run under an AppArmor profile, which may be the runtime's default."""
    spec = pod.get("spec") or {}
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    profiles = [(holder.get("securityContext") or {}).get("appArmorProfile") for holder in (spec, *every)]
    if any(profile and profile.get("type") != "Unconfined" for profile in profiles):
        return True
    annotated = (value for key, value in annotations(pod).items() if key.startswith(_APPARMOR))
    return any(value not in ("", "unconfined") for value in annotated)
