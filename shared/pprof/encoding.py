"""Writes stacks as a compressed pprof profile."""

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.pprof import profile_pb2

Place = tuple[str, str, int]  # function, file, line


@dataclass(frozen=True)
class SampledStack:
    """One stack: `places` innermost first, the number of samples, their CPU time, and labels."""

    places: tuple[Place, ...]
    samples: int
    nanoseconds: int
    labels: Mapping[str, str]


def pprof(
    stacks: Iterable[SampledStack], *, began: float, seconds: float, period_nanoseconds: int, comments: Iterable[str]
) -> bytes:
    """Return the profile. `began`: seconds since the epoch; `seconds`: how long it took."""
    profile = profile_pb2.Profile(
        time_nanos=int(began * 1e9), duration_nanos=int(seconds * 1e9), period=period_nanoseconds
    )
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        profile.sample_type.add(type=text(kind), unit=text(unit))
    profile.period_type.type, profile.period_type.unit = text("cpu"), text("nanoseconds")
    profile.comment.extend(text(comment) for comment in comments)
    functions: dict[tuple[str, str], int] = {}
    locations: dict[Place, int] = {}
    for stack in stacks:
        for function, file, line in stack.places:
            if (function, file) not in functions:
                number = functions[function, file] = len(functions) + 1
                profile.function.add(id=number, name=text(function), system_name=text(function), filename=text(file))
            if (function, file, line) not in locations:
                number = locations[function, file, line] = len(locations) + 1
                profile.location.add(id=number).line.add(function_id=functions[function, file], line=line)
        sample = profile.sample.add(
            location_id=[locations[place] for place in stack.places], value=[stack.samples, stack.nanoseconds]
        )
        for key, value in stack.labels.items():
            sample.label.add(key=text(key), str=text(value))
    profile.string_table.extend(value.encode("utf-8", "replace").decode() for value in texts)
    return gzip.compress(profile.SerializeToString())
