"""Lays defaults, configuration file, drop-ins and flags over one another (config.md 2.1, 2.2, 3.5, 3.6).

Decides every value of the effective KubeletConfiguration, and keeps for each where it came from. Pure: decoded data
in, data and origins out; reads no file, checks no rule. The table of fields is the only source of defaults.
"""

import copy
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from shared.config.decoding import Decoded, decode
from shared.config.document import Document
from shared.config.durations import format_duration, parse_nanoseconds
from shared.config.field_table import FIELDS
from shared.config.fields import RELATIVE_PATHS, SAME, UNSET, Field, schema_tree
from shared.config.findings import Findings
from shared.config.nested import put_value, remove_value, value_of
from shared.model.schema import MapOf, Scalar

# Keys that have their default only while a feature gate is on.
_GATED = {
    "crashLoopBackOff.maxContainerRestartPeriod": "KubeletCrashLoopBackOffMax",
    "imagePullCredentialsVerificationPolicy": "KubeletEnsureSecretPulledImages",
}
_GATES = "featureGates"
_VMODULE = "logging.vmodule"
_EVICTION_HARD = "evictionHard"
_FIELD_OF = {one.key: one for one in FIELDS}


class Layer(StrEnum):
    """What a value can come from, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    DROP_IN = "drop-in"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: `place` is `file:line:column` or the flag; `reason`: why it is not the plain one."""

    layer: Layer
    place: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.place or self.layer.value, self.reason) if part)


class DefaultInputs(msgspec.Struct, frozen=True):
    """What defaults depend on beside the table.

    `defaults` replaces defaults of the table, with the reason. `gates_of` gives the value of every feature gate when
    these are set explicitly.
    """

    cgroup_v1: bool = False
    defaults: Mapping[str, tuple[Any, str]] = msgspec.field(default_factory=dict)
    gates_of: Callable[[Mapping[str, bool]], Mapping[str, bool]] = dict
    flag_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)


@dataclass
class Layers:
    """The KubeletConfiguration so far, nested; `origins` by dotted key, of a map also by `<key>.<name>`.

    `places` has those of all that was given, also of what is inside lists and maps.
    """

    inputs: DefaultInputs = field(default_factory=DefaultInputs)
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def is_given(self, key: str) -> bool:
        """Return whether a file or a flag gives this key, or a key inside it."""
        while key not in self.origins and ("." in key or "[" in key):
            key = key[: max(key.rfind("."), key.rfind("["))]
        return key in self.origins and bool(self.origins[key].place)

    def given_keys(self) -> list[str]:
        """Return the keys of the table that a file or a flag gives, in its order."""
        return [one.key for one in FIELDS if (origin := self.origins.get(one.key)) and origin.place]


def lay_flags_only(inputs: DefaultInputs) -> Layers:
    """Return what the kubelet begins with when no file is given: defaults with the insecure legacy ones, no
    evictionHard.
    """
    layers = Layers(inputs)
    _fill(layers, legacy=True)
    return layers


def lay_file(given: Decoded, file: str, inputs: DefaultInputs) -> Layers:
    """Return the configuration file over the defaults. `file` is absolute; relative paths begin at its directory."""
    data = {name: value for name, value in given.data.items() if name not in ("apiVersion", "kind")}
    layers = Layers(inputs, data, {}, given.places)
    _note_origins(layers, Layer.FILE)
    _fill(layers)
    for key in RELATIVE_PATHS:
        path = value_of(layers.data, key)
        if path and not path.startswith("/"):
            put_value(layers.data, key, posixpath.normpath(posixpath.join(posixpath.dirname(file), path)))
    _fill_evictions(layers)
    return layers


def lay_drop_ins(base: Layers, drop_ins: list[Document], findings: Findings) -> Layers:
    """Return the drop-ins merged onto the base one after the other, decoded, and defaults filled in again."""
    raw, origins, places = copy.deepcopy(base.data), dict(base.origins), dict(base.places)
    for one in FIELDS:
        if _is_omitted(value_of(raw, one.key), one):
            remove_value(raw, one.key)
            origins.pop(one.key, None)
    for document in drop_ins:
        patch = {name: value for name, value in document.data.items() if name not in ("apiVersion", "kind")}
        _merge_patch(raw, patch, "", places, document.places, origins)
    decoded = decode(raw, schema_tree(FIELDS), places, findings, any_case=True)
    layers = Layers(base.inputs, decoded.data, origins, decoded.places)
    _note_origins(layers, Layer.DROP_IN)
    _fill(layers)
    return layers


def lay_own_flags(layers: Layers, fields: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Flags over everything: each replaces as a whole, feature gates one by one; patterns of files are added."""
    for key, value in fields.items():
        origin = Origin(Layer.FLAG, places[key])
        if key == _GATES:
            put_value(layers.data, key, {**(value_of(layers.data, key) or {}), **value})
        elif key == _VMODULE:
            known = value_of(layers.data, key) or []
            put_value(layers.data, key, [*known, *(item for item in value if item not in known)])
        else:
            put_value(layers.data, key, copy.deepcopy(value))
            _forget(layers.origins, key)
            _forget(layers.places, key)
        layers.origins[key] = origin
        layers.places[key] = places[key]
        if isinstance(_FIELD_OF[key].schema, MapOf):
            layers.origins |= {f"{key}.{name}": origin for name in value}
            layers.places |= {f"{key}.{name}": places[key] for name in value}


def finish(layers: Layers) -> None:
    """Write durations as Go prints them; any negative podPidsLimit is -1."""
    for one in FIELDS:
        value = value_of(layers.data, one.key)
        if one.schema in (Scalar.DURATION, Scalar.DURATION_OR_NANOSECONDS) and isinstance(value, str):
            put_value(layers.data, one.key, format_duration(parse_nanoseconds(value)))
    if (limit := value_of(layers.data, "podPidsLimit")) is not None and limit < -1:
        origin = layers.origins["podPidsLimit"]
        layers.origins["podPidsLimit"] = Origin(origin.layer, origin.place, f"{limit} is as good as -1")
        put_value(layers.data, "podPidsLimit", -1)


def is_zero(value: Any, one: Field) -> bool:
    """Return whether the value is one that some keys treat as not given."""
    if one.schema in (Scalar.DURATION, Scalar.DURATION_OR_NANOSECONDS) and isinstance(value, str):
        return parse_nanoseconds(value) == 0
    return not value


def _note_origins(layers: Layers, layer: Layer) -> None:
    """Set this layer as the origin of what has a place and no origin yet."""
    for one in FIELDS:
        names = (value_of(layers.data, one.key) or {}) if isinstance(one.schema, MapOf) else ()
        for key in (one.key, *(f"{one.key}.{name}" for name in names)):
            if key in layers.places and key not in layers.origins:
                layers.origins[key] = Origin(layer, layers.places[key])


def _forget(known: dict[str, Any], key: str) -> None:
    """Forget a key and all that is below it."""
    below = (f"{key}.", f"{key}[")
    for one in [one for one in known if one == key or one.startswith(below)]:
        del known[one]


def _fill(layers: Layers, *, legacy: bool = False) -> None:
    """Give every key that was not given its default; where zero counts as not given, that too."""
    explicit = {**layers.inputs.flag_gates, **(value_of(layers.data, _GATES) or {})}
    gates = layers.inputs.gates_of(explicit)
    update = value_of(layers.data, "nodeStatusUpdateFrequency")
    for one in FIELDS:
        value = value_of(layers.data, one.key)
        if value is not None and not (one.zero == UNSET and is_zero(value, one)):
            continue
        if one.key == _EVICTION_HARD:  # filled in apart, once
            continue
        default, reason = _default(one, layers, legacy, gates, update)
        if value is not None:
            shown = '""' if value == "" else value
            reason = ", ".join(part for part in (f"{layers.origins[one.key].place} gives {shown}", reason) if part)
        if default is None:
            remove_value(layers.data, one.key)
            _forget(layers.origins, one.key)
            continue
        put_value(layers.data, one.key, list(default) if isinstance(default, tuple) else copy.deepcopy(default))
        layers.origins[one.key] = Origin(Layer.DEFAULT, "", reason)


def _default(
    one: Field, layers: Layers, legacy: bool, gates: Mapping[str, bool], update: str | None
) -> tuple[Any, str]:
    """Return the default of one key, None = unset, and why it is not the table's."""
    facts = layers.inputs
    if one.key in facts.defaults:
        return facts.defaults[one.key]
    if one.key == "nodeStatusReportFrequency" and update and parse_nanoseconds(update) != 0:
        return update, "as nodeStatusUpdateFrequency"
    if one.key == "serializeImagePulls" and (parallel := value_of(layers.data, "maxParallelImagePulls") or 0) > 1:
        return False, f"maxParallelImagePulls is {parallel}"
    if one.key == "failCgroupV1" and facts.cgroup_v1:
        return False, "this machine has cgroup v1 and it is not set"
    if (gate := _GATED.get(one.key)) and not gates.get(gate, True):
        return None, f"the feature gate {gate} is off"
    if legacy and one.legacy is not SAME:
        return one.legacy, "neither --config nor --config-dir is given"
    return one.default, ""


def _fill_evictions(layers: Layers) -> None:
    """evictionHard has its defaults from the configuration file's load alone; `{}` is kept (config.md 2.2)."""
    defaults: dict[str, str] = _FIELD_OF[_EVICTION_HARD].default
    given: dict[str, str] | None = value_of(layers.data, _EVICTION_HARD)
    if given is None:
        layers.origins[_EVICTION_HARD] = Origin(Layer.DEFAULT)
        reason = ""
    elif value_of(layers.data, "mergeDefaultEvictionSettings"):
        reason = "mergeDefaultEvictionSettings is true"
    else:
        return
    for name in defaults.keys() - (given or {}).keys():
        layers.origins[f"{_EVICTION_HARD}.{name}"] = Origin(Layer.DEFAULT, "", reason)
    put_value(layers.data, _EVICTION_HARD, {**defaults, **(given or {})})


def _is_omitted(value: Any, one: Field) -> bool:
    """Return whether the kubelet leaves the value out when it writes the base that drop-ins are merged onto."""
    if value is None or isinstance(value, list | dict):
        return not value
    return not value and not one.default and one.schema is not Scalar.DURATION


def _merge_patch(
    target: dict[str, Any],
    patch: dict[str, Any],
    prefix: str,
    places: dict[str, str],
    patch_places: Mapping[str, str],
    origins: dict[str, Origin],
) -> None:
    """Merge a patch by RFC 7386: mappings merge, null deletes, everything else replaces. Keep `places` and `origins` in
    step."""
    for name, value in patch.items():
        key = f"{prefix}.{name}" if prefix else name
        merges = isinstance(value, dict) and isinstance(target.get(name), dict)
        if not merges and name in target:
            _forget_tree(target[name], key, places)
            _forget_tree(target[name], key, origins)
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            if key in patch_places:
                places[key] = patch_places[key]
            if not merges:
                target[name] = {}
            _merge_patch(target[name], value, key, places, patch_places, origins)
        else:
            target[name] = value
            _copy_places(value, key, patch_places, places)


def _forget_tree(value: Any, key: str, known: dict[str, Any]) -> None:
    """Forget the key of this value and all below it, in time that grows with the value."""
    known.pop(key, None)
    for inner, inner_key in _parts(value, key):
        _forget_tree(inner, inner_key, known)


def _copy_places(value: Any, key: str, source: Mapping[str, str], places: dict[str, str]) -> None:
    if key in source:
        places[key] = source[key]
    for inner, inner_key in _parts(value, key):
        _copy_places(inner, inner_key, source, places)


def _parts(value: Any, key: str) -> Iterator[tuple[Any, str]]:
    """Yield the inner values with their dotted keys, as `read_documents` names them."""
    if isinstance(value, dict):
        yield from ((inner, f"{key}.{name}") for name, inner in value.items())
    elif isinstance(value, list):
        yield from ((inner, f"{key}[{index}]") for index, inner in enumerate(value))
