"""Settles every feature gate (config.md 3.7): explicit over AllAlpha and AllBeta over the default.

Pure: what was given in; every gate's value out, problems into the findings. Knows no file and no field.
"""

from collections.abc import Callable, Mapping

from shared.config.findings import Findings
from shared.config.gate_releases import enabled, first_release_of, gates_of
from shared.config.gate_table import ALL_ALPHA, ALL_BETA, BUILT_FEATURES, GATES, REMOVED_GATES, Gate, Stage
from shared.config.spelling import closest
from shared.version import KUBERNETES_VERSION

_STAGE_SWITCH = {Stage.ALPHA: ALL_ALPHA, Stage.BETA: ALL_BETA}
_REMARKS = {  # on a gate that is given
    Stage.GA: "is generally available and will go in a later release",
    Stage.DEPRECATED: "is deprecated and will go in a later release",
    Stage.REMOVED: "was removed: the feature is always there",
}


def resolve_gates(
    given: Mapping[str, bool],
    findings: Findings,
    place_of: Callable[[str], str] | None = None,
    release: str = KUBERNETES_VERSION,
) -> tuple[dict[str, bool], list[str]]:
    """Return the value of every gate of the release, and remarks. `given` are the explicit ones, with the flag's over
    the file's; `place_of` takes `featureGates.<gate>` and is that of the findings when left out.
    """
    place_of, gates = place_of or findings.place_of, gates_of(release)
    known = {name: value for name, value in given.items() if name in gates and value is not None}
    for name in given:
        _check_given(name, given, release, findings, place_of)
    values = {name: _value(name, gates, known) for name in gates}
    _check_dependencies(values, gates, known, findings, place_of)
    remarks = [
        f"{_where(name, place_of)}{remark} (leave it out)"
        for name in known
        if (remark := _REMARKS.get(gates[name].stage))
    ]
    return values, remarks


def declared_features(values: Mapping[str, bool]) -> tuple[str, ...] | None:
    """Return the names for `status.declaredFeatures`, sorted: the features that are built and whose gates are on in
    `values` (an absent gate has its default). None = the node declares nothing (gate NodeDeclaredFeatures)."""
    if not enabled(values, "NodeDeclaredFeatures"):
        return None
    needs = {name: GATES[name].needs if name in GATES else () for name in BUILT_FEATURES}
    on = (name for name in BUILT_FEATURES if all(enabled(values, one) for one in (name, *needs[name])))
    return tuple(sorted(on))


def _value(name: str, gates: Mapping[str, Gate], known: Mapping[str, bool]) -> bool:
    gate = gates[name]
    if name in known and not (gate.locked and known[name] is not gate.default):
        return known[name]
    switch = _switch(gate, known)
    return known[switch] if switch and not gate.locked else gate.default


def _check_given(
    name: str, given: Mapping[str, bool], release: str, findings: Findings, place_of: Callable[[str], str]
) -> None:
    key, gates = f"featureGates.{name}", gates_of(release)
    if name in REMOVED_GATES:
        what = f"unrecognized feature gate: {name}"
        findings.add(key, what, "it was removed; leave it out", place_of(key))
    elif name not in gates:
        remedy = "this release does not know it; leave it out"
        if other := first_release_of(name):
            remedy = f'Kubernetes {release} has no such gate; leave it out, or set emulatedVersion, such as "{other}"'
        elif close := closest(name, list(gates)):
            remedy = f"did you mean {close}?"
        findings.add(key, f"unrecognized feature gate: {name}", remedy, place_of(key))
    elif gates[name].locked and given[name] is not None and given[name] is not gates[name].default:
        default = str(gates[name].default).lower()
        what = f"cannot set feature gate {name} to {str(given[name]).lower()}: it is locked to {default}"
        findings.add(key, what, "leave it out", place_of(key))


def _check_dependencies(
    values: Mapping[str, bool],
    gates: Mapping[str, Gate],
    known: Mapping[str, bool],
    findings: Findings,
    place_of: Callable[[str], str],
) -> None:
    """Report each enabled gate without the gates that it builds on."""
    for name, gate in gates.items():
        for needed in gate.needs if values[name] else ():
            if values[needed]:
                continue
            reported = (
                next((one for one in (needed, name) if one in known), "") or _switch(gates[needed], known) or name
            )
            key = f"featureGates.{reported}"
            what = f"{name} is enabled, but depends on feature gate {needed}, which is disabled"
            findings.add(key, what, f"enable {needed} or disable {name}", place_of(key))


def _switch(gate: Gate, known: Mapping[str, bool]) -> str:
    """AllAlpha or AllBeta where that was given and rules this gate."""
    switch = _STAGE_SWITCH.get(gate.stage, "")
    return switch if switch in known else ""


def _where(name: str, place_of: Callable[[str], str]) -> str:
    """Return what a remark begins with."""
    place = place_of(f"featureGates.{name}")
    if place.startswith("--"):
        return f"{place}: {name} "
    return f"{place}: featureGates.{name}: " if place else f"featureGates.{name}: "
