"""What a process shows of itself while it runs: stacks, a profile, the verbosity of its log."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GetStacks:
    """Request to every service: where its threads and tasks are now."""


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """Answer to GetStacks: text, cut where it is too long."""

    threads: str
    tasks: str


@dataclass(frozen=True, kw_only=True)
class GetProfile:
    """Request to every service: where it spends CPU time in the next `seconds`, more than 0."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One line of code of a profile."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, kw_only=True)
class ProfiledStack:
    """One stack of a thread. `frames`: places in the profile's list of frames, innermost first."""

    thread: str
    frames: tuple[int, ...]
    nanoseconds: int  # CPU time of the thread that was used when it was sampled here


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Answer to GetProfile: each line of code once, and the stacks, which name lines by their places."""

    frames: tuple[Frame, ...]
    stacks: tuple[ProfiledStack, ...]


@dataclass(frozen=True, kw_only=True)
class SetVerbosity:
    """Request to every service: log with this `-v` until the process ends."""

    verbosity: int


@dataclass(frozen=True, kw_only=True)
class VerbositySet:
    """Answer to SetVerbosity."""

    verbosity: int
