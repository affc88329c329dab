"""Decides what becomes of each pod of the node under this agent. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from services.cli.preflight.findings import PodVerdict, Verdict
from shared.model.objects import Object, name, namespace, uid
from shared.podspec.containers import used_volumes
from shared.podspec.defaults import apply_defaults
from shared.podspec.gated import unheeded_fields
from shared.podspec.pod_source import is_mirror, is_static
from shared.podspec.references import claim_name
from shared.podspec.schema import plain_copy, type_errors
from shared.podspec.support import Effect, Unsupported, unsupported, unsupported_persistent_volume
from shared.version import KUBERNETES_VERSION

_MAX_REASONS = 20  # of one pod


class NodeSupport(Struct, frozen=True, kw_only=True):
    """Has what verdicts depend on besides the pod. `claims`: by namespace/name, the spec of the PersistentVolume that a
    claim is bound to; `gates`: the feature gates with their values."""

    claims: Mapping[str, Object] = field(default_factory=dict)
    gates: Mapping[str, bool] | None = None  # None = the configuration is not known
    release: str = KUBERNETES_VERSION  # one of RELEASES


def verdicts(pods: Iterable[Object], node: NodeSupport) -> tuple[PodVerdict, ...]:
    """Return a verdict for each pod. `pods`: any JSON objects, as a file or an API has them."""
    return tuple(verdict_on(pod, node) for pod in pods)


def verdict_on(given: Object, node: NodeSupport) -> PodVerdict:
    """Return the verdict on one pod. `given` is not changed."""
    pod, errors = plain_copy(given)
    if errors := errors or type_errors(pod):
        field_path, _, text = errors[0].partition(": ")
        wrong = Unsupported(field_path, Effect.REJECTED, f"the pod is invalid: {text}")
        return _named(given, Verdict.CANNOT, running=False, reasons=(wrong,))
    phase = str(_object(pod.get("status")).get("phase") or "")
    if phase in ("Succeeded", "Failed"):
        return _named(pod, Verdict.ENDED, running=False)
    if not uid(pod):  # a manifest, for which the API server has not set defaults
        apply_defaults(pod)
    found = unsupported(pod)
    unheeded = () if node.gates is None else unheeded_fields(pod, node.gates, node.release)
    reasons = (*found, *_of_claims(pod, node.claims), *unheeded)[:_MAX_REASONS]
    return _named(pod, _verdict(pod, phase, reasons), running=phase == "Running", reasons=reasons)


def _verdict(pod: Object, phase: str, reasons: tuple[Unsupported, ...]) -> Verdict:
    if any(reason.effect is not Effect.WITHOUT for reason in reasons):
        return Verdict.CANNOT
    if phase and (is_static(pod) or is_mirror(pod)):
        return Verdict.RESTARTS
    return Verdict.RUNS


def _of_claims(pod: Object, claims: Mapping[str, Object]) -> list[Unsupported]:
    found = []
    used = used_volumes(pod)
    for index, volume in enumerate((pod.get("spec") or {}).get("volumes") or ()):
        claim = claim_name(pod, volume) if volume.get("name") in used else ""
        for wrong in unsupported_persistent_volume(claims.get(f"{namespace(pod)}/{claim}", {})) if claim else ():
            kind = "ephemeral" if "ephemeral" in volume else "persistentVolumeClaim"
            path = f"spec.volumes[{index}].{kind}"
            text = f"PersistentVolume {wrong.field}: {wrong.consequence}"
            found.append(Unsupported(path, wrong.effect, text))
    return found


def _named(pod: Object, verdict: Verdict, *, running: bool, reasons: tuple[Unsupported, ...] = ()) -> PodVerdict:
    held = {"metadata": _object(pod.get("metadata"))}
    return PodVerdict(
        namespace=namespace(held) or "default",
        name=name(held),
        uid=uid(held),
        verdict=verdict,
        running=running,
        reasons=reasons,
    )


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}
