"""Reads a configuration from flags and files, and carries the effective one through `<run dir>/config.json`.

bootstrap evaluates and writes, every service loads. Decides nothing about values; that is `resolve`.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shared.config.effective import CredentialProvider, EffectiveConfig
from shared.errors import OperatorError

if TYPE_CHECKING:
    from shared.config.resolve import Resolved

CONFIG_NAME = "config.json"
_VERSION = 1


def evaluate(arguments: list[str]) -> "Resolved":
    """Flags, the files they name, and defaults to one result. Raises ConfigurationRefusedError with every problem."""
    from shared.config.findings import ConfigurationRefusedError

    try:
        return _evaluate(arguments)
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        what = "paths that do not begin with / are read from the working directory, which no longer exists"
        raise ConfigurationRefusedError((f"{what} (start from another directory, or write such paths out)",)) from error


def _evaluate(arguments: list[str]) -> "Resolved":
    # Imported here: services only load, and need none of it for that.
    from shared.config.credential_providers import check_credential_providers
    from shared.config.document import read_documents
    from shared.config.drop_ins import DropIns, read_drop_ins, read_text
    from shared.config.findings import WARNING, Finding, Findings
    from shared.config.flags import parse_flags
    from shared.config.machine import look_at_machine
    from shared.config.places import find_places
    from shared.config.resolve import Sources, resolve
    from shared.config.settings import absolute

    flags, findings = parse_flags(arguments), Findings()
    file, directory = flags.own.get("config", ""), flags.own.get("config-dir", "")
    documents = []
    if file and (text := read_text(file, findings, "--config")) is not None:
        documents = read_documents(text, file, findings)
        if not documents and not findings.found:
            remedy = "write a KubeletConfiguration into it, or leave out --config"
            findings.add("", "is empty", remedy, place=file)
    drop_ins = read_drop_ins(directory, findings) if directory else DropIns()
    sources = Sources(file, documents, directory, drop_ins.documents)
    providers, plugins = (flags.own.get(f"image-credential-provider-{name}", "") for name in ("config", "bin-dir"))

    found: list[CredentialProvider] = []

    def check_providers(gates: Mapping[str, bool], findings: Findings) -> None:
        found.extend(check_credential_providers(providers, plugins, gates, findings))

    facts = look_at_machine()
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


def encode_effective(config: EffectiveConfig, generation: str) -> bytes:
    """Content of config.json. `generation` names the supervisord under which it is in force ("" = none)."""
    return json.dumps({"version": _VERSION, "generation": generation, "config": asdict(config)}, indent=1).encode()


def load_effective(run_dir: str) -> EffectiveConfig:
    """The effective configuration in force.

    Raises FileNotFoundError before bootstrap wrote it, OperatorError when it cannot be used.
    """
    return load_generation(run_dir)[0]


def load_generation(run_dir: str) -> tuple[EffectiveConfig, str]:
    """The effective configuration and the supervisord generation it was confirmed for; raises like load_effective."""
    path = Path(run_dir) / CONFIG_NAME
    return decode_effective(path.read_bytes(), str(path))


def decode_effective(content: bytes, where: str) -> tuple[EffectiveConfig, str]:
    """What encode_effective wrote. Raises OperatorError, naming `where`, when it cannot be used."""
    try:
        envelope: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        if envelope.get("version") != _VERSION:
            raise ValueError(f"version {envelope.get('version')}, not {_VERSION}")
        return msgspec.convert(envelope["config"], EffectiveConfig), str(envelope["generation"])
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        remedy = "restart bootstrap; it writes the file anew"
        raise OperatorError(f"cannot be used: {error}", where=where, remedy=remedy) from error
