"""Decides the effective configuration from documents, flags and machine (config.md 2, 3.1, 3.6, 5.7).

Calls every check, so that all problems are reported together. Reads no file and nothing of the machine; `layers`
decides which origin overrides which, the rules decide which values are wrong.
"""

import itertools
import posixpath
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct, field

from shared.agent.places import AgentPaths
from shared.config.decoding import decode
from shared.config.document import Document
from shared.config.drop_ins import check_head
from shared.config.effective import EffectiveConfig
from shared.config.field_table import FIELDS
from shared.config.fields import schema_tree
from shared.config.findings import ERROR, STRICT, WARNING, Finding, Findings
from shared.config.flag_lines import given_texts
from shared.config.flags import Flags
from shared.config.gate_releases import EVERY_GATE, gates_of
from shared.config.gates import resolve_gates
from shared.config.host_facts import HostFacts, check_host
from shared.config.layers import DefaultInputs, Layers, finish, lay_drop_ins, lay_file, lay_flags_only, lay_own_flags
from shared.config.nested import value_of
from shared.config.own_document import OWN_API_VERSION, OWN_KIND, is_own_document, own_document
from shared.config.own_flags import own_settings
from shared.config.rules import check_clients, check_listeners, check_open_access, check_rules
from shared.config.settings import absolute, settings_of
from shared.version import KUBERNETES_VERSION, is_since

_DYNAMIC = "DynamicKubeletConfig"
_NIL_THROTTLING_FACTOR = "1.37"  # the first release without a default for memoryThrottlingFactor
_BAD_GATES_IN_FILE = 2  # exit code (config.md 3.9)
_ACTS = {one.key: one.acts for one in FIELDS}


class Sources(Struct, frozen=True):
    """What was read: all documents of `--config`, and the first document of each drop-in.

    With `replaced`, the first of the documents is that of a ConfigMap, which was found at `file` and takes the place of
    `--config` and all drop-ins.
    """

    file: str = ""  # as --config gives it, "" = none
    documents: list[Document] = field(default_factory=list)
    config_dir: str = ""
    drop_ins: list[Document] = field(default_factory=list)
    replaced: bool = False


class Resolved(Struct, frozen=True):
    """The outcome: the configuration, the keys given that nothing acts on yet, and what was found and is no error.

    `layers` has the origin of every value, `ignored_drop_ins` the files of the drop-in
    directory that do not count.
    """

    config: EffectiveConfig
    without_effect: tuple[str, ...] = ()
    layers: Layers = field(default_factory=Layers)
    flags: Flags = field(default_factory=Flags)
    found: tuple[Finding, ...] = ()
    ignored_drop_ins: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each finding."""
        return tuple(finding.line for finding in self.found)


def resolve(
    sources: Sources,
    flags: Flags,
    places: AgentPaths,
    hostname: str,
    facts: HostFacts,
    findings: Findings,
    check_further: Callable[[Mapping[str, bool], Findings], None] = lambda gates, findings: None,
) -> Resolved:
    """Check and merge. `findings` has what was found on reading; `check_further` is called with the gates.

    Raises ConfigurationRefusedError.
    """
    findings.default_place = sources.file or sources.config_dir or "flags"
    kubelet, extension = _sort_documents(sources, findings)
    own = own_settings(flags.own, places, hostname, findings)
    of_document = own_document(extension, flags.own, own["config_file"], places, findings)
    embedded, docker = of_document.get("embedded_containerd"), of_document.get("docker")
    defaults: dict[str, tuple[Any, str]] = {}
    if embedded:
        defaults["containerRuntimeEndpoint"] = f"unix://{embedded.socket}", "embeddedContainerd is enabled"
    if docker:
        defaults["containerRuntimeEndpoint"] = f"unix://{docker.socket}", "the shim in front of Docker is enabled"
    if places.pod_logs_dir != _table_default("podLogsDir"):
        defaults["podLogsDir"] = places.pod_logs_dir, "BULKHEAD_HOME is set"
    release = of_document.get("emulated_version", KUBERNETES_VERSION)
    if not is_since(release, _NIL_THROTTLING_FACTOR):
        defaults["memoryThrottlingFactor"] = 0.9, f"emulatedVersion is {release}"
    stack = _Stack(flags, defaults, facts, release, findings)
    if sources.file and kubelet is None:
        findings.refuse_if_any()  # what could not be read cannot be checked
    layers = stack.lay(kubelet, absolute(sources.file), sources.drop_ins if sources.config_dir else None)
    gates = stack.resolve_gates(layers)
    if own["dynamic_config_dir"] and not gates[_DYNAMIC] and not sources.replaced:
        what, remedy = f"needs the feature gate {_DYNAMIC}", f"enable {_DYNAMIC}, or leave out the flag"
        findings.add("", what, remedy, place="--dynamic-config-dir")
    _check(layers, gates, own, facts, places, release, findings)
    check_further(gates, findings)
    findings.refuse_if_any()
    config = _effective(layers, gates, own, findings) | of_document | {"given_flags": given_texts(flags)}
    unused = tuple(key for key in layers.given_keys() if not _ACTS[key] and key not in flags.fields)
    unused += tuple(flags.places[key] for key in flags.fields if not _ACTS[key])
    return Resolved(
        EffectiveConfig(**config),
        tuple(dict.fromkeys((*unused, *flags.without_effect))),
        layers,
        flags,
        tuple(findings.found),
    )


def _table_default(key: str) -> Any:
    """Return the default that the table has for a key."""
    return next(one.default for one in FIELDS if one.key == key)


class _Stack:
    """Lays the layers in the kubelet's order, and resolves the feature gates where the kubelet does."""

    def __init__(
        self,
        flags: Flags,
        defaults: Mapping[str, tuple[Any, str]],
        facts: HostFacts,
        release: str,
        findings: Findings,
    ) -> None:
        self._flags, self._release, self._findings = flags, release, findings
        self._flag_gates: dict[str, bool] = flags.fields.get("featureGates", {})
        self._facts = DefaultInputs(facts.cgroup_v1, defaults, partial(_values_of, release), self._flag_gates)

    def lay(self, kubelet: Document | None, file: str, drop_ins: list[Document] | None) -> Layers:
        """Return everything but the rules. `file` is absolute; `drop_ins` None = no --config-dir."""
        if kubelet is not None:
            schema = schema_tree(FIELDS)
            given = decode(kubelet.data, schema, kubelet.places, self._findings)
            self._check_gates_of_file(given.data, given.places)
            layers = lay_file(given, file, self._facts)
        else:
            layers = lay_flags_only(self._facts)
        if drop_ins is not None:
            if kubelet is None:  # the kubelet has parsed its flags into that base already
                lay_own_flags(layers, self._flags.fields, self._flags.places)
            layers = lay_drop_ins(layers, drop_ins, self._findings)
            self._check_gates_of_file(layers.data, layers.places)
        lay_own_flags(layers, self._flags.fields, self._flags.places)
        finish(layers)
        return layers

    def resolve_gates(self, layers: Layers) -> dict[str, bool]:
        """Return the value of every gate in the end."""
        places = Findings(places=layers.places, default_place=self._findings.default_place)
        given = layers.data.get("featureGates") or {}
        gates, remarks = resolve_gates(_some(given), self._findings, places.place_of, self._release)
        for remark in remarks:
            self._findings.found.append(Finding(WARNING, "", remark))
        return gates

    def _check_gates_of_file(self, data: dict[str, Any], places: dict[str, str]) -> None:
        """Bad gates in a file end the kubelet while it fills in defaults, with exit code 2."""
        given: dict[str, bool] | None = data.get("featureGates")
        if not given:
            return
        of_flags, of_file = Findings(), Findings(places=places, default_place=self._findings.default_place)
        resolve_gates(self._flag_gates, of_flags, release=self._release)
        resolve_gates(_some({**self._flag_gates, **given}), of_file, release=self._release)
        if of_file.lines and not of_flags.lines:
            if not self._findings.lines:
                self._findings.exit_code = _BAD_GATES_IN_FILE
            self._findings.include(of_file)


def _values_of(release: str, given: Mapping[str, bool]) -> Mapping[str, bool]:
    known = {name: value for name, value in given.items() if name in gates_of(release)}
    return resolve_gates(known, Findings(), release=release)[0]


def _some(given: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return the known gates, and a bounded number of the others."""
    unknown = itertools.islice((name for name in given if name not in EVERY_GATE), 100)
    kept = {*unknown, *(name for name in given if name in EVERY_GATE)}
    return {name: value for name, value in given.items() if name in kept}


def _sort_documents(sources: Sources, findings: Findings) -> tuple[Document | None, Document | None]:
    """Return the KubeletConfiguration, which is the first document, and our own, the first of its kind."""
    kubelet, extension = None, None
    for index, document in enumerate(sources.documents):
        if index == 0:
            kubelet = document
            check_head(document, findings)
            for key, place, first in document.repeated:
                what = f"is given twice, first at {first}; the last one counts"
                findings.add(key, what, "remove one of them", place, STRICT)
        elif is_own_document(document) and extension is None:
            extension = document
        else:
            what = "is a further document, which is ignored"
            remedy = f"remove it, or make it one {OWN_KIND} of {OWN_API_VERSION}"
            findings.add("", what, remedy, document.place, WARNING)
    return kubelet, extension


def _check(
    layers: Layers,
    gates: Mapping[str, bool],
    own: dict[str, Any],
    facts: HostFacts,
    places: AgentPaths,
    release: str,
    findings: Findings,
) -> None:
    """Every rule. After a mistake in a file, what is wrong with defaults is left out, for it may follow from that."""
    data = layers.data
    found = Findings(places=layers.places, default_place=findings.default_place)
    check_rules(data, gates, found, release)
    check_host(data, facts, found)
    check_open_access(data, places.refuse_open_access, found)
    if own["kubeconfig"]:
        if data["runOnce"]:
            found.add("runOnce", "is true, and --kubeconfig is given", "leave out one of them")
        check_clients(data, found)
    else:
        _check_standalone(data, found)
    server = data["port"] if data["enableServer"] else 0
    listeners = [("port", data["address"], server), ("readOnlyPort", data["address"], data["readOnlyPort"])]
    listeners.append(("healthzPort", data["healthzBindAddress"], data["healthzPort"]))
    check_listeners(listeners, dict.fromkeys(layers.given_keys()), found)
    if any(one.severity == ERROR and not one.place.startswith("--") for one in findings.found):
        found.found = [one for one in found.found if not one.key or layers.is_given(one.key)]
    findings.include(found)


def _check_standalone(data: dict[str, Any], findings: Findings) -> None:
    if value_of(data, "authentication.webhook.enabled"):
        findings.add("authentication.webhook.enabled", "is true, which needs an API server", "set it to false")
    if value_of(data, "authorization.mode") == "Webhook":
        findings.add("authorization.mode", "is Webhook, which needs an API server", "set it to AlwaysAllow")


def _effective(layers: Layers, gates: Mapping[str, bool], own: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """Return the fields of EffectiveConfig."""
    settings = settings_of(layers.data, Findings())
    if bool(settings["tls_cert_file"]) != bool(settings["tls_private_key_file"]):
        what = "only one of tlsCertFile and tlsPrivateKeyFile is set: the server has no certificate (set both)"
        findings.found.append(Finding(WARNING, "", what))
    elif not settings["tls_cert_file"] and not settings["server_tls_bootstrap"]:
        settings["tls_cert_file"] = posixpath.join(own["cert_dir"], "kubelet.crt")
        settings["tls_private_key_file"] = posixpath.join(own["cert_dir"], "kubelet.key")
    if settings["run_once"]:
        settings |= {"enable_server": False, "read_only_port": 0}
        own |= {"node_page_port": 0}
    values = {**dict.fromkeys(EVERY_GATE - gates.keys(), False), **gates}  # a gate of another release is off
    return {**own, **settings, "feature_gates": values, "document": layers.data}
