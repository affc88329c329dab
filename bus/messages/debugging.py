"""What a process shows of itself while it runs: stacks, a profile, the verbosity of its log."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GetStacks:
    """Ask a service where its threads and tasks are now."""


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """This message answers GetStacks with text, which is cut where it is too long."""

    threads: str
    tasks: str


@dataclass(frozen=True, kw_only=True)
class GetProfile:
    """Ask a service where it spends CPU time in the next `seconds`, a number above 0."""

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
    nanoseconds: int  # CPU time that the thread had used since the sample before


@dataclass(frozen=True, kw_only=True)
class Profile:
    """This message answers GetProfile. `frames` has each line of code once, and stacks name places in it."""

    frames: tuple[Frame, ...]
    stacks: tuple[ProfiledStack, ...]


@dataclass(frozen=True, kw_only=True)
class SetVerbosity:
    """Ask a service to log with this `-v` until its process ends."""

    verbosity: int


@dataclass(frozen=True, kw_only=True)
class VerbositySet:
    """This message answers SetVerbosity with the verbosity (`-v`) that counts from now on."""

    verbosity: int
