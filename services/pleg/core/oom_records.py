"""Reads what the kernel logs about processes that it killed for lack of memory (node.md 4.17)."""

import re
from dataclasses import dataclass

from shared.frozen_copy import replace

ROOT_CGROUP = "/"
_BEGIN = "invoked oom-killer:"
_CGROUPS = re.compile(r"oom-kill:constraint=.*?oom_memcg=(?P<limited>[^,]*),task_memcg=(?P<task>[^,]*),")
_OLD_CGROUPS = re.compile(r"Task in (?P<task>\S+) killed as a result of limit of (?P<limited>\S+)")
_END = re.compile(r"Killed process (?P<pid>\d{1,10}),? .*?\((?P<name>.*?)\)")


@dataclass(frozen=True, kw_only=True)
class OomKill:
    """A killed process. `limited`: the cgroup whose limit was reached, `/` = the machine had no memory left."""

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
    """Takes one line of the kernel's log after the other."""

    def __init__(self) -> None:
        self._current: OomKill | None = None

    def take(self, line: str) -> OomKill | None:
        """The kill that this line completes."""
        if _BEGIN in line:
            self._current = OomKill()
        elif self._current is None:
            pass
        elif found := _CGROUPS.search(line) or _OLD_CGROUPS.search(line):
            self._current = replace(self._current, limited=found["limited"])
        elif found := _END.search(line):
            complete = replace(self._current, process=found["name"], pid=int(found["pid"]))
            self._current = None
            return complete
        return None
