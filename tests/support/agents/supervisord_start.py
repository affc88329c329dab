"""Starts the supervisord of a test's agent, as a fork of an interpreter that has imported it and our services.

What supervisord imports before its first service takes most of the CPU time of a start. The fork runs supervisord's own
`main` with the same arguments, and shows the command line that `.venv/bin/supervisord` has.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from services.frame.preloading import _MODULES
from tests.support.agents.preloaded import Preloaded

_SUPERVISORD = "supervisor.supervisord"
LOADED = (_SUPERVISORD, "supervisor.rpcinterface", *_MODULES)


def start_supervisord(
    command: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int, *, preloaded: bool = True
) -> "subprocess.Popen[bytes] | Preloaded":
    """Start `.venv/bin/supervisord` with its arguments, in a session of its own. `stdout`, `stderr`: descriptors;
    `preloaded`: False where the start itself is tested or measured."""
    if not preloaded:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
        )
    stdin = os.open(os.devnull, os.O_RDONLY)
    try:
        return Preloaded(
            _SUPERVISORD,
            command[1:],
            (stdin, stdout, stderr),
            environment,
            modules=LOADED,
            command_line=(sys.executable, *command),
        )
    finally:
        os.close(stdin)
