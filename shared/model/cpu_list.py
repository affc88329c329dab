"""Reads and writes lists of CPUs or NUMA nodes as the kernel has them, such as `0-3,8`."""

import re
from collections.abc import Iterable

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_MAX_CPUS = 200_000  # repetitions included; a longer list is none, and would only cost


def parse_cpus(text: str) -> frozenset[int] | None:
    """Return the CPUs of a list such as `0-3,8`; None when it is none."""
    cpus: set[int] = set()
    spent = 0
    for part in text.strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            return None
        listed = range(int(match[1]), int(match[2] or match[1]) + 1)
        spent += len(listed)
        if spent > _MAX_CPUS:
            return None
        cpus.update(listed)
    return frozenset(cpus)


def write_cpus(cpus: Iterable[int]) -> str:
    """Return the list in ascending order, with ranges; "" for no CPU."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
