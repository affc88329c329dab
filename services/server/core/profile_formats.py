"""Profiles of several processes as one: the stacks with their process, as collapsed lines or for speedscope."""

from collections.abc import Iterable, Mapping, Sequence

from bus.messages.debugging import Profile
from shared.model.objects import Object
from shared.pprof.encoding import Place, SampledStack

PPROF, COLLAPSED, SPEEDSCOPE = "pprof", "collapsed", "speedscope"
FORMATS = (PPROF, COLLAPSED, SPEEDSCOPE)
_OTHER = ("(other)", "", 0)


def sampled_stacks(profiles: Mapping[str, Profile]) -> list[SampledStack]:
    """Return the stacks of all processes by name; the outermost place is the name of the process."""
    return [
        SampledStack(
            (*(_places(profile, stack.frames) or (_OTHER,)), (process, "", 0)),
            stack.samples,
            stack.nanoseconds,
            {"process": process, "thread": stack.thread},
        )
        for process, profile in profiles.items()
        for stack in profile.stacks
    ]


def collapsed(stacks: Iterable[SampledStack]) -> str:
    """Return one line for each stack, outermost first, with its CPU time in microseconds; samples where it has none."""
    lines = []
    for stack in stacks:
        names = (
            f"{function} ({file.rpartition('/')[2]}:{line})" if file else function
            for function, file, line in stack.places
        )
        shown = ";".join(name.replace(";", ",") for name in reversed(list(names)))
        lines.append(f"{shown} {stack.nanoseconds // 1000 or stack.samples}\n")
    return "".join(lines)


def speedscope(stacks: Sequence[SampledStack], name: str) -> Object:
    """Return the document that speedscope opens: one profile for each process, weights in nanoseconds."""
    frames: dict[Place, int] = {}
    profiles = []
    for process in dict.fromkeys(stack.labels["process"] for stack in stacks):
        own = [stack for stack in stacks if stack.labels["process"] == process]
        samples = [[frames.setdefault(place, len(frames)) for place in reversed(stack.places)] for stack in own]
        weights = [stack.nanoseconds or stack.samples for stack in own]
        profiles.append(
            {
                "type": "sampled",
                "name": process,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    shared = [{"name": function, **({"file": file, "line": line} if file else {})} for function, file, line in frames]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "bulkhead",
        "name": name,
        "shared": {"frames": shared},
        "profiles": profiles,
    }


def _places(profile: Profile, frames: Iterable[int]) -> tuple[Place, ...]:
    found = (profile.frames[index] for index in frames if 0 <= index < len(profile.frames))
    return tuple((frame.function, frame.file, frame.line) for frame in found)
