"""Kills between two system calls, within one process: the calls that change something are counted, one is not made."""

import sys
from collections.abc import Callable
from typing import Any

_CHANGING = {
    "chmod", "chown", "fchmod", "fchown", "lchown", "link", "mkdir", "open", "rename", "replace", "rmdir", "symlink",
    "unlink",
}  # fmt: skip
STEPS = 400  # more system calls than any test makes


class KilledError(BaseException):
    """In place of SIGKILL: no handler of Exception runs."""


def killed(step: int, act: Callable[[], object]) -> bool:
    """Whether it was killed before the system call of this number, of those that change something."""
    seen = 0

    def count(frame: object, event: str, called: Any) -> None:
        nonlocal seen
        if event == "c_call" and getattr(called, "__module__", "") == "posix" and called.__name__ in _CHANGING:
            seen += 1
            if seen == step:
                raise KilledError

    sys.setprofile(count)
    try:
        act()
    except KilledError:
        return True
    finally:
        sys.setprofile(None)
    return False
