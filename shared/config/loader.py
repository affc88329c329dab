"""Reads a configuration from flags and files, and carries the effective one through `<run dir>/config.json`.

bootstrap evaluates and writes, every service loads. Decides nothing about values; that is `resolve`.
"""

import json
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shared.config.effective import EffectiveConfig
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError

if TYPE_CHECKING:
    from shared.config.findings import Findings
    from shared.config.resolve import Resolved

CONFIG_NAME = "config.json"
_VERSION = 1


def evaluate(arguments: list[str]) -> "Resolved":
    """Flags, the file they name, and defaults to one result. Raises ConfigurationRefusedError with every problem."""
    # Imported here: services only load, and need neither yaml nor click for that.
    from shared.config.document import read_documents
    from shared.config.findings import Findings
    from shared.config.flags import parse_flags
    from shared.config.places import find_places
    from shared.config.resolve import resolve

    flags, findings = parse_flags(arguments), Findings()
    file = flags.own.get("config", "")
    documents = read_documents(_read(file), file, findings) if file else []
    resolved = resolve(documents, flags, find_places(), socket.gethostname(), findings)
    _check_reserved_cpus(resolved.config.document.get("reservedSystemCPUs") or "", findings)
    resolv_conf = resolved.config.resolv_conf
    if resolv_conf and not Path(resolv_conf).exists():
        remark = f"resolvConf: {resolv_conf} does not exist: pods with the node's DNS cannot start (create it)"
        return replace(resolved, remarks=(*resolved.remarks, remark))
    return resolved


def _check_reserved_cpus(text: str, findings: "Findings") -> None:
    """reservedSystemCPUs are CPUs that are there (reference config.md 2.3). Raises ConfigurationRefusedError."""
    from shared.config.node_settings import parse_cpus

    try:
        online = parse_cpus(Path("/sys/devices/system/cpu/online").read_text(encoding="ascii"))
    except OSError:
        return
    if text and online and (missing := (parse_cpus(text) or frozenset()) - online):
        what = f'is "{text}", but CPU {min(missing)} is not online'
        findings.add("reservedSystemCPUs", what, "name CPUs of /sys/devices/system/cpu/online")
        findings.refuse_if_any()


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        line = f"--config: {file} cannot be read: {error.strerror} (give the path of a KubeletConfiguration file)"
    except UnicodeDecodeError:
        line = f"--config: {file} is not text (save it as UTF-8)"
    raise ConfigurationRefusedError((line,))


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
