"""Keeps the code of the methods of dataclasses, which Python compiles from a text for each class at each import.

The product has six hundred of them, whose methods take a third of its import, and a run has a hundred processes that
import it. The texts are executed as before; their code is in a file of the cache, and a text that is not there is
compiled and written to it when the process ends.
"""

import atexit
import builtins
import dataclasses
import marshal
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead"
# Code is of one version of Python, to its last number: the bytes of another mean something else or nothing.
FILE = _CACHE / f"test-dataclasses-{sys.implementation.cache_tag}-{sys.hexversion:x}.marshal"
MAX_TEXTS = 20_000  # several times what a run has; with more, most are of classes that are gone


def read_codes(file: Path) -> dict[str, CodeType]:
    """Return the code of each text in the file; nothing where it cannot be read."""
    try:
        found = marshal.loads(file.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def write_codes(file: Path, new: dict[str, CodeType]) -> None:
    """Add the new ones to the file. Where it cannot be written it stays as it is."""
    every = {**read_codes(file), **new}
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(marshal.dumps(every if len(every) <= MAX_TEXTS else new))
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)


def keep_codes(file: Path = FILE) -> None:
    """Let `dataclasses` execute the code of the file in this process, and write what is new when the process ends."""
    known, new = read_codes(file), {}
    process = os.getpid()

    def execute(text: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        if (code := known.get(text)) is None:
            code = known[text] = new[text] = compile(text, "<string>", "exec", dont_inherit=True)
        builtins.exec(code, names, local)

    def write() -> None:
        if new and os.getpid() == process:  # not a fork
            write_codes(file, new)

    vars(dataclasses)["exec"] = execute  # before the builtin of this name
    atexit.register(write)
