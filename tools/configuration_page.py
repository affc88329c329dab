"""Writes docs/configuration.md from the tables of keys, flags and gates: `python -m tools.configuration_page`.

A test compares the page with the tables. Reads no values but the defaults.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shared.config.docker import (
    DEFAULT_CNI_BIN_DIR,
    DEFAULT_CNI_CONF_DIR,
    DEFAULT_ENDPOINT,
    DEFAULT_SANDBOX_IMAGE,
)
from shared.config.effective import DEFAULT_RECORD_BYTES, EmbeddedContainerd
from shared.config.embedded import REGISTRY_CONFIG_PATH
from shared.config.field_table import FIELDS
from shared.config.fields import Field, FlagKind
from shared.config.flag_table import FLAGS, REMOVED_FLAGS, WINDOWS_FLAGS, Flag
from shared.config.flag_text import value_text
from shared.config.gate_releases import gates_of
from shared.config.gate_table import BUILT_FEATURES, Gate
from shared.config.own_document import MAX_RECORD_BYTES, MIN_RECORD_BYTES
from shared.config.readers import GATE_READERS
from shared.model.device_action import DEVICE_ACTION_ANNOTATION
from shared.model.schema import ListOf, MapOf, Scalar, Schema
from shared.version import KUBERNETES_VERSION, RELEASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

_HEAD = f"""\
# Configuration

All keys and flags of the kubelet of Kubernetes {KUBERNETES_VERSION}, and their effect in Bulkhead. This page is
generated from the tables that the agent reads (`shared/config/field_table.py`, `shared/config/flag_table.py`), by
`python -m tools.configuration_page`.

In rising precedence: the default, the file of `--config`, the drop-ins below `--config-dir` in order of their names,
the flags. `bulkhead config check` finds every mistake in them; `bulkhead config show` prints the effective values and
their origin.

- [Keys of KubeletConfiguration](#keys-of-kubeletconfiguration)
- [A containerd of the agent](#a-containerd-of-the-agent)
- [Docker](#docker)
- [Devices](#devices)
- [The release of Kubernetes](#the-release-of-kubernetes)
- [Flags without a key](#flags-without-a-key)
- [Removed flags](#removed-flags)
- [Feature gates](#feature-gates)
- [Accepted, but without effect](#accepted-but-without-effect)
"""
_KEYS = """\
## Keys of KubeletConfiguration

In a file of `apiVersion: kubelet.config.k8s.io/v1beta1` and `kind: KubeletConfiguration`. *flags alone* is the default
without `--config` and `--config-dir`.
"""
_CONTAINERD = """\
## A containerd of the agent

supervisord can run a containerd for this agent alone, with its own directories, socket and bridge network. The file of
`--config` then has a second document, after a line `---`. A drop-in has no such document.

```yaml
apiVersion: bulkhead/v1alpha1
kind: BulkheadConfiguration
embeddedContainerd:
  enabled: true
```
"""
_DOCKER = """\
## Docker

Keys of the section `docker` of the same `BulkheadConfiguration`: supervisord runs a shim that serves CRI in front of
the Docker of the machine, and the agent uses it as its container runtime. The flags that the kubelet had for its
dockershim outrank them. [Docker](docker.md) says what it does and what Docker cannot do.
"""
DOCKER_SHIM = (
    ("`enabled`", "`false`", "run the shim, as `--container-runtime=docker` does"),
    ("`endpoint`", f"`{DEFAULT_ENDPOINT}`", "socket of Docker Engine's API (`--docker-endpoint`)"),
    ("`sandboxImage`", f"`{DEFAULT_SANDBOX_IMAGE}`", "image of pod sandboxes (`--pod-infra-container-image`)"),
    ("`cniBinDir`", f"`{DEFAULT_CNI_BIN_DIR}`", "directories of CNI plugins, separated by commas (`--cni-bin-dir`)"),
    ("`cniConfDir`", f"`{DEFAULT_CNI_CONF_DIR}`", "directory of CNI configurations (`--cni-conf-dir`)"),
    (
        "`imagePullProgressDeadline`",
        "`1m`",
        "a pull that makes no progress for so long is ended (`--image-pull-progress-deadline`)",
    ),
)
_DEVICES = """\
## Devices

Keys of the same `BulkheadConfiguration`, with and without a containerd of its own.
"""
_OFFLINE = """\
## Starts without a control plane

Keys of the same `BulkheadConfiguration`, with and without a containerd of its own; only a node in a cluster uses them.
[Starts without a control plane](operations.md#starts-without-a-control-plane) says what they do,
[security](security.md#records-for-a-start-without-a-control-plane) what is on the disk then.
"""
OFFLINE = (
    ("`enabled`", "`false`", "keep the pods of the node, and what they need, in encrypted records"),
    (
        "`maxAge`",
        "`168h`",
        "a record that the API server has not confirmed for longer is not used; at least 60s",
    ),
    (
        "`maxBytes`",
        f"`{DEFAULT_RECORD_BYTES}`",
        (
            "limit on the pods and objects, and on the tokens; what exceeds it is left out, pods of low priority "
            f"first; from {MIN_RECORD_BYTES} to {MAX_RECORD_BYTES}"
        ),
    ),
)
_RELEASE = """\
## The release of Kubernetes

A key of the same `BulkheadConfiguration`, with and without a containerd of its own. The release decides which feature
gates there are and their defaults, the version that the Node, `/statusz`, traces and the metric `kubernetes_build_info`
show, the User-Agent of requests, probes and hooks, what `kubelet --version` prints (that of the file of `--config`, and
without this flag of the installed agent's), and which API servers `bulkhead preflight` finds too old. Before 1.37 the
default of `memoryThrottlingFactor` is 0.9, and since 1.37 there is none: `memory.high` of a container is set only where
the configuration gives a factor.
[Versions](versions.md#releases-of-kubernetes) has what is built of each release.
"""
RELEASE = (
    (
        "`emulatedVersion`",
        f'`"{KUBERNETES_VERSION}"`',
        "the release whose kubelet the agent behaves as, in quotes: " + ", ".join(f'`"{one}"`' for one in RELEASES),
    ),
)
_FLAGS = """\
## Flags without a key

`_` equals `-` in the name of a flag. A boolean flag takes a value after `=` only.
"""
_GONE = """\
## Removed flags

Flags of earlier releases. Those with an effect are refused, as by every later kubelet, with a line that names the
remedy. Those that kubeadm wrote into its drop-ins, or that never had an effect, are accepted with a line on standard
error.
"""
_GATES = """\
## Feature gates

Every gate of the release that the agent [emulates](#the-release-of-kubernetes) is accepted (`featureGates`,
`--feature-gates`), a locked one only with its default. These change what a process of Bulkhead does:
"""
_OTHER_GATES = """\
A key or flag that needs another gate is refused without it. Apart from that the other gates have no effect: their
feature is always there, is missing here, or belongs to another component. `bulkhead preflight` names those that a
configuration switches on.
"""
_IDLE = """\
## Accepted, but without effect

These are parsed, checked and shown, and have no effect yet. `bulkhead config check` names those that a configuration
sets.
"""
CONTAINERD = (
    ("`enabled`", "`false`", "run a containerd"),
    ("`root`", "`/var/lib/bulkhead/containerd`", "directory of its images and snapshots"),
    (
        "`state`",
        "`/run/bulkhead/containerd/state`",
        "directory of what its containers need while they run; for pods with `hostUsers: false` others must pass to it",
    ),
    ("`bridge`", f"`{EmbeddedContainerd.bridge}`", "network interface of the bridge that connects the pods"),
    ("`podCIDR`", f"`{EmbeddedContainerd.pod_cidr}`", "IPv4 network of the pods, /29 or wider"),
    (
        "`sandboxImage`",
        f"`{EmbeddedContainerd.sandbox_image}`",
        "image of pod sandboxes; `make run` builds the default one",
    ),
    ("`path`", f"`{EmbeddedContainerd.path}`", "the program: a name in PATH, or a path"),
    (
        "`defaultRuntime`",
        f"`{EmbeddedContainerd.default_runtime}`",
        "runs containers: `runc` or `crun`; each that is installed is also a handler for RuntimeClasses",
    ),
    ("`cniBinDir`", f"`{EmbeddedContainerd.cni_bin_dir}`", "directory of the CNI plugins"),
    (
        "`registryConfigPath`",
        f"`{REGISTRY_CONFIG_PATH}`",
        "directory with `hosts.toml` files: [mirrors, certificates](operations.md#mirrors-and-certificates)",
    ),
)
DEVICES = (
    (
        "`devicePluginWait`",
        "`5m`",
        (
            "how long a new pod waits for a device plugin that is not connected, before it is rejected; at most 24h, "
            "`0s`: not at all ([device plugins that are away](operations.md#device-plugins-that-are-away))"
        ),
    ),
    (
        "`deviceUnhealthyAction`",
        "`None`",
        (
            "what is done when a device of a container becomes unhealthy: `None`, `RestartContainer` or `FailPod`; the "
            f"annotation `{DEVICE_ACTION_ANNOTATION}` of a pod overrides it "
            "([unhealthy devices](operations.md#unhealthy-devices))"
        ),
    ),
)
_TYPES = {
    Scalar.BOOLEAN: "bool",
    Scalar.INT32: "int32",
    Scalar.INT64: "int64",
    Scalar.UINT32: "uint32",
    Scalar.FLOAT64: "float64",
    Scalar.STRING: "string",
    Scalar.DURATION: "duration",
    Scalar.DURATION_OR_NANOSECONDS: "duration",
    Scalar.QUANTITY: "quantity",
}


def page() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        _KEYS,
        _table(("key", "type", "default", "flag", "meaning"), (_key_row(field) for field in FIELDS)),
        _CONTAINERD,
        _table(("key below `embeddedContainerd`", "default", "meaning"), CONTAINERD),
        _DOCKER,
        _table(("key below `docker`", "default", "meaning"), DOCKER_SHIM),
        _DEVICES,
        _table(("key", "default", "meaning"), DEVICES),
        _OFFLINE,
        _table(("key below `offlinePods`", "default", "meaning"), OFFLINE),
        _RELEASE,
        _table(("key", "default", "meaning"), RELEASE),
        _FLAGS,
        _table(
            ("flag", "type", "default", "meaning"),
            (_flag_row(flag) for flag in FLAGS.values() if not flag.key and not _gone(flag)),
        ),
        _GONE,
        _table(("flag", "behaviour"), _gone_rows()),
        _GATES,
        _table(("gate", *RELEASES, "read by"), _gate_rows()),
        _OTHER_GATES,
        _IDLE,
        _table(("key or flag", "meaning"), _idle_rows()),
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _key_row(field: Field) -> tuple[str, ...]:
    default = _shown(field.default)
    if field.flags_only_default != field.default:
        default += f"; flags alone {_shown(field.flags_only_default)}"
    flag = f"`--{field.flag}`" if field.flag else ""
    return f"`{field.key}`", _type(field.schema), default, flag, field.doc


def _type(schema: Schema) -> str:
    if isinstance(schema, ListOf):
        return f"list of {_type(schema.item)}"
    if isinstance(schema, MapOf):
        return f"map of {_type(schema.value)}"
    if isinstance(schema, dict):
        return "{" + ", ".join(f"{name}: {_type(inner)}" for name, inner in schema.items()) + "}"
    return _TYPES[schema]


def _shown(default: Any) -> str:
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, dict):
        return " ".join(f"`{name}: {text}`" for name, text in default.items())
    if isinstance(default, tuple):
        return f"`[{', '.join(default)}]`"
    return f"`{default}`" if default != "" else "empty"


def _gone(flag: Flag) -> bool:
    return flag.deprecated.startswith("removed in ")


def _flag_row(flag: Flag) -> tuple[str, ...]:
    name = f"`-{flag.shorthand}`, `--{flag.name}`" if flag.shorthand else f"`--{flag.name}`"
    default = value_text(flag.kind, flag.default)
    what = flag.doc + (f" (deprecated: {flag.deprecated})" if flag.deprecated else "")
    kind = "bool" if flag.kind is FlagKind.BOOL else flag.kind.word
    return name, kind, f"`{default}`" if default else "empty", what


def _gone_rows() -> list[tuple[str, ...]]:
    rows = {f"`--{name}`": f"refused; {removed.shown}" for name, removed in REMOVED_FLAGS.items()}
    rows |= {f"`--{name}`": "refused; it exists on Windows only" for name in WINDOWS_FLAGS}
    for flag in FLAGS.values():
        if _gone(flag):
            value = f" with the value {' or '.join(flag.choices)}" if flag.choices else ""
            rows[f"`--{flag.name}`"] = f"accepted{value}, without effect; {flag.deprecated}"
    return sorted(rows.items(), key=lambda row: row[0].strip("`"))


def _gate_rows() -> list[tuple[str, ...]]:
    """Return the gates that a process reads, and those that the Node declares, which status reads."""
    readers = {name: set(services) for name, services in GATE_READERS.items()}
    for name in BUILT_FEATURES:
        readers.setdefault(name, set()).add("status")
    return [
        (f"`{name}`", *(_gate(gates_of(version).get(name)) for version in RELEASES), ", ".join(sorted(readers[name])))
        for name in sorted(readers)
    ]


def _gate(gate: Gate | None) -> str:
    """Return the stage and the default of a gate in one release."""
    return "none" if gate is None else f"{gate.stage} {_shown(gate.default)}{', locked' if gate.locked else ''}"


def _idle_rows() -> list[tuple[str, ...]]:
    rows = [(f"`{field.key}`", field.doc) for field in FIELDS if not field.acts]
    return [*rows, *((f"`--{flag.name}`", flag.doc) for flag in FLAGS.values() if not flag.acts and not flag.key)]


def main() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
