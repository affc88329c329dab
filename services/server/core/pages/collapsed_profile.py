"""Forms the CPU profiles of several processes as collapsed stacks, the text that flamegraph.pl and speedscope read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bus.messages.debugging import Frame, Profile, ProfiledStack


def collapsed_profile(profiles: Mapping[str, Profile | str]) -> str:
    """Return one line for each stack: the process and the functions, outermost first, and the CPU time in microseconds.

    `profiles` has each process's profile by its name, or why there is none: that is the process's only line.
    """
    return "".join(line for process, profile in profiles.items() for line in _lines(process, profile))


def _lines(process: str, profile: Profile | str) -> Iterator[str]:
    if isinstance(profile, str):
        yield _line([process, f"({profile})"], 1)
        return
    used: Counter[tuple[str, ...]] = Counter()  # nanoseconds; the threads of a pool have one stack
    for stack in profile.stacks:
        used[process, *_functions(profile, stack)] += stack.nanoseconds
    for names, nanoseconds in used.items():
        yield _line(names, max(1, nanoseconds // 1000))


def _functions(profile: Profile, stack: ProfiledStack) -> list[str]:
    frames = [profile.frames[index] for index in reversed(stack.frames) if 0 <= index < len(profile.frames)]
    return [_function(frame) for frame in frames] or ["(other)"]


def _function(frame: Frame) -> str:
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def _line(names: Sequence[str], microseconds: int) -> str:
    return f"{';'.join(' '.join(name.replace(';', ',').split()) for name in names)} {microseconds}\n"
