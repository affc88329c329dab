"""Evaluates a configuration: flags, the files they name and the machine, to one result with every problem.

For bootstrap, `kubelet` and the command; services load the outcome by `loader`. Decides nothing about values; that is
`resolve`.
"""

import socket
from collections.abc import Mapping
from pathlib import Path

from shared.agent.places import find_places
from shared.config.credential_providers import check_credential_providers
from shared.config.decoding import decode
from shared.config.document import Document, read_documents
from shared.config.drop_ins import DropIns, check_head, read_drop_ins, read_text
from shared.config.effective import CredentialProvider
from shared.config.field_table import FIELDS
from shared.config.fields import schema_tree
from shared.config.findings import WARNING, ConfigurationRefusedError, Finding, Findings
from shared.config.flags import parse_flags
from shared.config.host_facts import read_host_facts
from shared.config.own_document import EMULATED_VERSION, is_own_document
from shared.config.resolve import Resolved, Sources, resolve
from shared.config.settings import absolute
from shared.model.frozen_copy import replace
from shared.version import KUBERNETES_VERSION, RELEASES


def evaluate(arguments: list[str], replacement: str = "") -> Resolved:
    """Evaluate flags, the files they name, and defaults into one result. Raises ConfigurationRefusedError with every
    problem.

    `replacement` is the path of a KubeletConfiguration that is used in place of `--config` and of all drop-ins.
    """
    try:
        return _evaluate(arguments, replacement)
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        what = "paths that do not begin with / are read from the working directory, which no longer exists"
        raise ConfigurationRefusedError((f"{what} (start from another directory, or write such paths out)",)) from error


def emulated_version(file: str) -> str:
    """Return the Kubernetes release that the file of --config chooses, one of RELEASES; the default where there is no
    file, or it cannot be read."""
    findings = Findings(default_place=file)
    text = read_text(file, findings, "--config") if file else None
    own = filter(is_own_document, read_documents(text, file, findings)[1:] if text is not None else ())
    version = next((document.data.get(EMULATED_VERSION) for document in own), None)
    return version if version in RELEASES else KUBERNETES_VERSION


def check_readable(file: str) -> None:
    """Raise ConfigurationRefusedError if the file has no KubeletConfiguration that can be decoded."""
    findings = Findings(default_place=file)
    kubelet = _first_document(file, findings)
    check_head(kubelet, findings)
    decode(kubelet.data, schema_tree(FIELDS), kubelet.places, findings)
    findings.refuse_if_any()


def _first_document(file: str, findings: Findings) -> Document:
    """Return the first document of the file. Raises ConfigurationRefusedError if there is none."""
    text = read_text(file, findings, file)
    documents = read_documents(text, file, findings) if text is not None else []
    if not documents:
        findings.add("", "has no KubeletConfiguration", "write one into it", place=file)
        findings.refuse_if_any()
    return documents[0]


def _evaluate(arguments: list[str], replacement: str) -> Resolved:
    flags, findings = parse_flags(arguments), Findings()
    file, directory = flags.own.get("config", ""), flags.own.get("config-dir", "")
    documents = []
    if file and (text := read_text(file, findings, "--config")) is not None:
        documents = read_documents(text, file, findings)
        if not documents and not findings.found:
            remedy = "write a KubeletConfiguration into it, or leave out --config"
            findings.add("", "is empty", remedy, place=file)
    drop_ins = DropIns()
    if replacement:
        replaced = [_first_document(replacement, findings), *documents[1:]]
        sources = Sources(replacement, replaced, replaced=True)
    else:
        drop_ins = read_drop_ins(directory, findings) if directory else drop_ins
        sources = Sources(file, documents, directory, drop_ins.documents)
    providers, plugins = (flags.own.get(f"image-credential-provider-{name}", "") for name in ("config", "bin-dir"))

    found: list[CredentialProvider] = []

    def check_providers(gates: Mapping[str, bool], findings: Findings) -> None:
        found.extend(check_credential_providers(providers, plugins, gates, findings))

    facts = read_host_facts()
    resolved = resolve(sources, flags, find_places(), socket.gethostname(), facts, findings, check_providers)
    bin_dir = absolute(plugins)
    config = replace(resolved.config, credential_providers=tuple(found), credential_provider_bin_dir=bin_dir)
    resolved = replace(resolved, config=config, ignored_drop_ins=tuple(drop_ins.ignored))
    resolv_conf = resolved.config.resolv_conf
    if resolv_conf and not Path(resolv_conf).exists():
        what = f"{resolv_conf} does not exist: pods with the node's DNS cannot start"
        found_too = (*resolved.found, Finding(WARNING, "resolvConf", what, "create it"))
        return replace(resolved, found=found_too)
    return resolved
