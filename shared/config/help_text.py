"""Forms what `--help` and `--version` print (config.md 3.3). Text only; decides nothing.

The layout of the flags is that of Go's pflag, which scripts and manuals read.
"""

import json
import platform
from importlib.metadata import PackageNotFoundError, distribution

from shared.config.fields import FlagKind
from shared.config.flag_table import FLAGS, Flag
from shared.config.flag_text import value_text
from shared.config.gate_releases import gates_of
from shared.config.gate_table import ALL_ALPHA, Stage
from shared.host.machine import architecture
from shared.log.klog import go_quote
from shared.version import KUBERNETES_VERSION, release_tag

_LONG = """\
The node agent of a Kubernetes node. It makes this machine a node of the cluster whose API server the kubeconfig
names, and runs the pods that are bound to the node and those of a directory of manifests. Without a kubeconfig it runs
the manifests alone.

This kubelet is Bulkhead: it takes the flags and files of the kubelet, and consists of separate, supervised processes.
Most settings belong in the file of --config; a flag overrides the file.

Usage:
  kubelet [flags]

Flags:
"""
_NOTHING = {
    FlagKind.BOOL: ("false",),
    FlagKind.DURATION: ("0", "0s"),
    FlagKind.STRING: ("",),
    FlagKind.STRINGS: ("[]",),
}
_CONTINUED = "\n" + 16 * " "  # a further line of a description
_PACKAGE = "bulkhead-kubelet"


def help_text() -> str:
    """Return the whole text, with a line break at its end."""
    flags = [(_head(flag), _description(flag)) for flag in FLAGS.values()]
    width = max(len(head) for head, _ in flags)
    return _LONG + "".join(f"{head:{width}}   {description}\n" for head, description in flags)


def _head(flag: Flag) -> str:
    letter = f"-{flag.shorthand}, " if flag.shorthand else "    "
    word = {FlagKind.BOOL: "", FlagKind.VERSION: " version[=true]"}.get(flag.kind, f" {flag.kind.word}")
    return f"  {letter}--{flag.name}{word}"


def _description(flag: Flag) -> str:
    text = flag.doc
    if flag.kind is FlagKind.GATES:
        text += _CONTINUED.join(("; those that are no part of a release yet:", *gate_lines()))
    default = value_text(flag.kind, flag.default)
    if default not in _NOTHING.get(flag.kind, ("false", "", "0")):
        text += f" (default {go_quote(default) if flag.kind is FlagKind.STRING else default})"
    return f"{text} (DEPRECATED: {flag.deprecated})" if flag.deprecated else text


def gate_lines() -> list[str]:
    """Return a line `Name=true|false (BETA - default=true)` for every gate that is neither GA nor deprecated,
    alphabetically."""
    lines = []
    for name, gate in sorted(gates_of(KUBERNETES_VERSION).items()):
        stage = (Stage.ALPHA if name == ALL_ALPHA else Stage.BETA) if gate.stage is Stage.ALL else gate.stage
        if stage in (Stage.ALPHA, Stage.BETA):
            lines.append(f"{name}=true|false ({stage.upper()} - default={'true' if gate.default else 'false'})")
    return lines


def version_text(form: str, release: str) -> str:
    """Return one line without its break: for "raw" all its parts as a Go struct, else `Kubernetes v…`. `release`: one
    of RELEASES."""
    if form != "raw":
        return f"Kubernetes {release_tag(release)}"
    major, minor = release.split(".")
    facts = {
        "Major": major,
        "Minor": minor,
        **dict.fromkeys(("EmulationMajor", "EmulationMinor", "MinCompatibilityMajor", "MinCompatibilityMinor"), ""),
        "GitVersion": release_tag(release),
        "GitCommit": _commit(),
        "GitTreeState": "unknown",
        "BuildDate": "1970-01-01T00:00:00Z",  # as in an unstamped build of Go; parses as a time
        "GoVersion": "unknown",
        "Compiler": platform.python_implementation().lower(),
        "Platform": f"{platform.system().lower()}/{architecture()}",
    }
    return f"version.Info{{{', '.join(f'{name}:{go_quote(value)}' for name, value in facts.items())}}}"


def _commit() -> str:
    """Return the commit the package was installed from, where its metadata names it (PEP 610)."""
    try:
        origin = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "{}")
        return str(origin["vcs_info"]["commit_id"])
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return "unknown"
