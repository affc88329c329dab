"""The flags as text: the `FLAG:` lines that a kubelet logs at its start (config.md 5.13), and what /flagz shows. Pure;
secrets never leave it.
"""

from collections.abc import Mapping
from typing import Any

from shared.config.flag_table import FLAGS
from shared.config.flag_text import MASKED, value_text
from shared.config.flags import Flags
from shared.log.klog import go_quote

_ACTIONS = ("help", "version")
CLASSIFIED = "CLASSIFIED"  # the value of a secret on /flagz


def given_texts(flags: Flags) -> dict[str, str]:
    """Return the text of each flag that the command line gave."""
    texts = {}
    for name, flag in FLAGS.items():
        given, key = (flags.fields, flag.key) if flag.key else (flags.own, name)
        if key in given:
            texts[name] = CLASSIFIED if flag.secret else value_text(flag.kind, given[key])
    return texts


def flag_texts(given: Mapping[str, str]) -> dict[str, str]:
    """Return the text of every flag by name: the given one, else its default."""
    defaults = {name: value_text(flag.kind, flag.default) for name, flag in FLAGS.items() if name not in _ACTIONS}
    return {**defaults, **dict.fromkeys(_ACTIONS, "false"), **given}


def flag_lines(flags: Flags, merged: Mapping[str, Any] | None = None) -> list[str]:
    """Return one `FLAG: --name="value"` record per flag, alphabetically: what the command line gave, or the default of
    it.

    `merged` maps dotted keys to values that hold instead of the defaults, for drop-ins without a configuration file.
    """
    lines = []
    for name, flag in FLAGS.items():
        given = flags.fields if flag.key else flags.own
        key = flag.key or name
        if name == "help":
            text = "true" if flags.asks_help else "false"
        elif name == "version":
            text = flags.version or "false"
        elif flag.secret and given.get(key):
            text = MASKED
        else:
            default = merged[key] if merged and flag.key and merged.get(key) is not None else flag.default
            text = value_text(flag.kind, given.get(key, default))
        lines.append(f"FLAG: --{name}={go_quote(text)}")
    return lines
