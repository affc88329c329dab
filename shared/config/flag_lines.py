"""The `FLAG:` lines that a kubelet logs at its start (config.md 5.13). Pure; secrets never leave it."""

from collections.abc import Mapping
from typing import Any

from shared.config.flag_table import FLAGS
from shared.config.flag_text import MASKED, value_text
from shared.config.flags import Flags
from shared.klog import go_quote


def flag_lines(flags: Flags, merged: Mapping[str, Any] | None = None) -> list[str]:
    """One `FLAG: --name="value"` record per flag, alphabetically: what the command line gave, or the default of it.

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
