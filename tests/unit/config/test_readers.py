"""Which services a changed setting restarts: the tables are those of the code, and the changes are complete."""

import ast
from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from bus.messages.streams import SERVICES
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.config.gate_releases import EVERY_GATE
from shared.config.loader import decode_effective, encode_effective
from shared.config.readers import (
    DOCUMENT_READERS,
    FIELD_READERS,
    FIXED,
    FOLLOWED,
    GATE_READERS,
    changes,
    restarted_by,
)
from shared.model.frozen_copy import replace

ROOT = Path(__file__).parents[3] / "services"
SETTINGS = {field.name for field in fields(EffectiveConfig)} | {"joins_cluster"}
EVALUATION = "taken_ports.py"  # reads a configuration before it is in force
OF_SOME = {"container_runtime.py": "services.frame.container_runtime"}  # rooms of the frame that not all services use

NOT_OF_LOG = {"document", "feature_gates", "config_source", "config_source_since"}

CONFIG = EffectiveConfig(node_name="n1", root_dir="/r", run_dir="/u", log_dir="/l", cert_dir="/c")


@dataclass(frozen=True)
class Module:
    """A module of the services or the frame, and the services that it is part of."""

    text: str
    services: frozenset[str]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Those of its tree."""
        return list(ast.walk(ast.parse(self.text)))

    def reads(self, *attributes: str) -> bool:
        """Whether it reads an attribute with one of these names; the nodes of others need no look."""
        return any(f".{attribute}" in self.text for attribute in attributes)


@cache
def modules() -> list[Module]:
    texts = {service: {path: path.read_text() for path in (ROOT / service).rglob("*.py")} for service in SERVICES}
    found = [
        Module(text, frozenset({service}))
        for service, files in texts.items()
        for path, text in files.items()
        if path.name != EVALUATION
    ]
    for path in (ROOT / "frame").glob("*.py"):
        room = OF_SOME.get(path.name, "")
        users = (each for each, files in texts.items() if any(room in text for text in files.values()))
        found.append(Module(path.read_text(), frozenset(users)))
    return found


def is_configuration(node: ast.expr) -> bool:
    """Whether the expression is the configuration that the service started with."""
    text = ast.unparse(node)
    return text.endswith("config") and not text.endswith("newest_config")


def of_document(node: ast.AST) -> str:
    """The key that a call of `value_of` reads from the configuration's document, else ""."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "value_of":
        return ""
    source, key = node.args
    is_document = isinstance(source, ast.Attribute) and source.attr == "document" and is_configuration(source.value)
    return str(ast.literal_eval(key)) if is_document else ""


@pytest.mark.long
def test_each_field_has_the_readers_that_the_code_has() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr in SETTINGS and is_configuration(node.value):
                found[node.attr] |= module.services
    expected = {name: set(readers) for name, readers in FIELD_READERS.items()}
    assert {name: readers for name, readers in found.items() if name not in FOLLOWED | FIXED} == expected
    assert FIELD_READERS.keys() | FOLLOWED | FIXED == SETTINGS


def test_each_key_of_the_document_has_the_readers_that_the_code_has() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    reads = 0
    for module in modules():
        for node in module.nodes if module.reads("document") else ():
            if key := of_document(node):
                found[key] |= module.services
                reads -= 1
            if isinstance(node, ast.Attribute) and node.attr == "document" and is_configuration(node.value):
                reads += 1
    assert found == DOCUMENT_READERS
    assert reads == 0, "a document is read in another way than by `value_of(config.document, ...)`"


def test_each_feature_gate_has_the_readers_that_the_code_has() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        if "feature_gates" in module.text:
            for node in module.nodes:
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in EVERY_GATE:
                    found[node.value] |= module.services
    assert found == GATE_READERS


def test_the_settings_of_the_log_are_read_by_the_frame_alone() -> None:
    of_log = FOLLOWED - NOT_OF_LOG
    for module in modules():
        for node in module.nodes if module.reads(*of_log) else ():
            if isinstance(node, ast.Attribute) and node.attr in of_log:
                assert module.services == set(SERVICES) or not is_configuration(node.value), ast.unparse(node)


@pytest.mark.parametrize(
    ("change", "name", "services"),
    [
        ({"eviction_hard": {"memory.available": "1Gi"}}, "evictionHard", {"pleg", "podsync"}),
        ({"file_check_frequency": 5.0}, "fileCheckFrequency", {"sources"}),
        ({"client_ca_file": "/ca"}, "authentication.x509.clientCAFile", {"bootstrap", "server"}),
        ({"node_ips": ("10.0.0.1",)}, "--node-ip", {"podsync", "status"}),
        ({"feature_gates": {"ContainerStopSignals": True}}, "featureGates.ContainerStopSignals", {"podsync"}),
        ({"document": {"memorySwap": {"swapBehavior": "NoSwap"}}}, "memorySwap.swapBehavior", {"podsync"}),
        ({"document": {"enableContentionProfiling": True}}, "enableContentionProfiling", set()),
        ({"shutdown_grace_period": 10.0}, "shutdownGracePeriod", {"podsync", "status"}),
        ({"document": {"logging": {"verbosity": 4}}, "verbosity": 4}, "logging", set()),
    ],
)
def test_a_change_restarts_its_readers(change: dict[str, Any], name: str, services: set[str]) -> None:
    [found] = changes(CONFIG, replace(CONFIG, **change))
    assert (found.name, set(found.services), found.fixed) == (name, services, False)


def test_the_first_kubeconfig_restarts_all_services_that_depend_on_a_cluster() -> None:
    joined = replace(CONFIG, kubeconfig="/k")
    assert restarted_by(changes(CONFIG, joined)) == set(SERVICES) - {"pleg"}
    assert restarted_by(changes(joined, replace(joined, kubeconfig="/other"))) == {"bootstrap"}


def test_a_gate_that_the_node_declares_restarts_status() -> None:
    off = replace(CONFIG, feature_gates={"NodeDeclaredFeatures": False})
    [found] = changes(CONFIG, off)
    assert found.services == {"podsync", "status"}, "podsync reads the gate itself"


@pytest.mark.parametrize("field", sorted(FIXED))
def test_a_fixed_setting_is_no_matter_of_a_reload(field: str) -> None:
    value = EmbeddedContainerd(root="/a", state="/b", socket="/s", config_file="/f", cni_conf_dir="/n")
    plain = True if field == "run_once" else "/other"
    other: Any = value if field == "embedded_containerd" else plain
    assert [change.fixed for change in changes(CONFIG, replace(CONFIG, **{field: other}))] == [True]


def test_the_driver_of_an_embedded_containerd_is_fixed() -> None:
    embedded = EmbeddedContainerd(root="/a", state="/b", socket="/s", config_file="/f", cni_conf_dir="/n")
    config = replace(CONFIG, embedded_containerd=embedded)
    [found] = changes(config, replace(config, cgroup_driver="systemd"))
    assert found.fixed


def test_what_a_file_has_of_a_configuration_is_no_change_to_it() -> None:
    full = replace(
        CONFIG,
        node_ips=("10.0.0.1",),
        vmodule=(("a*", 3),),
        register_with_taints=({"key": "k", "effect": "NoExecute"},),
    )
    read, _ = decode_effective(encode_effective(full, ""), "config.json")
    assert read == full
    assert changes(full, read) == ()
