"""Builds the decoders of everything that travels, or that every service reads: for a process that forks the services.

What it builds they share; built by each, it is memory of each. Knows no message by name.
"""

import dataclasses
import importlib
import pkgutil

from bus import codec, frames, messages
from shared.config.effective import EffectiveConfig


def prepare() -> None:
    """All decoders, 60 or so, in about 20 ms."""
    modules = [
        importlib.import_module(f"{messages.__name__}.{found.name}")
        for found in pkgutil.iter_modules(messages.__path__)
    ]
    for module in (frames, *modules):
        for value in vars(module).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value):
                codec.prepare(value)
    codec.prepare(EffectiveConfig)
