"""For a test of processes: writes down what an agent's processes import, and when. Python runs it where it finds it.

One line per module that is not imported yet: monotonic seconds, program, module. Forked processes inherit the hook.
"""

import os
import sys
import time

_FILE = os.environ.get("IMPORTS_FILE", "")


def _note(event: str, arguments: tuple[object, ...]) -> None:
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if event != "import" or "/services/" not in program:
        return
    line = f"{time.monotonic():.3f} {program.rpartition('/services/')[2]} {arguments[0]}\n"
    file = os.open(_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


if _FILE:
    sys.addaudithook(_note)
