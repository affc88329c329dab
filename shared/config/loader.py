"""Carries the effective configuration through `<run dir>/config.json`: bootstrap writes it, every service loads it.

Decides nothing about values; how they come about is `evaluation`'s.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import to_builtins

from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME, VERSION, checked_envelope, unusable


def encode_effective(config: EffectiveConfig, generation: str) -> bytes:
    """Return the content of config.json. `generation` names the supervisord under which it is in force ("" = none)."""
    return json.dumps({"version": VERSION, "generation": generation, "config": to_builtins(config)}, indent=1).encode()


def load_effective(run_dir: str) -> EffectiveConfig:
    """Return the effective configuration in force.

    Raises FileNotFoundError before bootstrap wrote it, OperatorError when it cannot be used.
    """
    return load_generation(run_dir)[0]


def load_generation(run_dir: str) -> tuple[EffectiveConfig, str]:
    """Return the effective configuration and the supervisord generation it was confirmed for; raises like
    load_effective.
    """
    path = Path(run_dir) / CONFIG_NAME
    return decode_effective(path.read_bytes(), str(path))


def decode_effective(content: bytes, where: str) -> tuple[EffectiveConfig, str]:
    """Return what encode_effective wrote. Raises OperatorError, naming `where`, when it cannot be used."""
    try:
        envelope = checked_envelope(msgspec.json.decode(content, type=dict[str, Any]))
        return msgspec.convert(envelope["config"], EffectiveConfig), str(envelope["generation"])
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise unusable(error, where) from error
