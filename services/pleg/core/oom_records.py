"""Parses what the kernel logs about processes that it killed for lack of memory (node.md 4.17).
A record has names that a container may choose (of processes, of cgroups below its own), so that parsing takes linear
time.
"""

import re

from msgspec import Struct

from shared.model.frozen_copy import replace

ROOT_CGROUP = "/"
_BEGIN = "invoked oom-killer:"
_CGROUPS, _LIMITED, _TASK = "oom-kill:constraint=", "oom_memcg=", "task_memcg="
_OLD_TASK, _OLD_LIMITED = "Task in ", re.compile(r" killed as a result of limit of (\S+)")
_END = re.compile(r"Killed process (\d{1,10}),? ")


class OomKill(Struct, frozen=True, kw_only=True):
    """Has a killed process. `limited`: the cgroup whose limit was reached, `/` = the machine had no memory left."""

    process: str = ""
    pid: int = 0
    limited: str = ROOT_CGROUP

    @property
    def of_the_node(self) -> bool:
        """Whether the machine had no memory left."""
        return self.limited == ROOT_CGROUP

    @property
    def message(self) -> str:
        """The text of the event SystemOOM."""
        victim = f", victim process: {self.process}, pid: {self.pid}" if self.process else ""
        return f"System OOM encountered{victim}"


class OomRecords:
    """Assembles kills from the lines of the kernel's log, which `take` gets one after the other."""

    def __init__(self) -> None:
        self._current: OomKill | None = None

    def take(self, line: str) -> OomKill | None:
        """Take a line, and return the kill that it completes; None = it completes none."""
        if _BEGIN in line:
            self._current = OomKill()
        elif self._current is None:
            return None
        elif limited := _limited_cgroup(line):
            self._current = replace(self._current, limited=limited)
        elif match := _END.search(line):
            name, closed, _ = line[match.end() :].partition("(")[2].partition(")")
            if closed:
                complete = replace(self._current, process=name, pid=int(match[1]))
                self._current = None
                return complete
        return None


def _limited_cgroup(line: str) -> str:
    """Return the cgroup whose limit was reached, "" where the line names none."""
    if (at := line.find(_CGROUPS)) >= 0:
        limited, _, rest = line[at:].partition(_LIMITED)[2].partition(",")
        return limited if rest.startswith(_TASK) else ""
    match = _OLD_LIMITED.search(line, at) if (at := line.find(_OLD_TASK)) >= 0 else None
    return match[1] if match else ""
