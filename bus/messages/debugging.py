"""What a process shows of itself while it runs: stacks, a profile, the verbosity of its log."""

from msgspec import Struct


class GetStacks(Struct, frozen=True, kw_only=True):
    """Ask a service where its threads and tasks are now."""


class Stacks(Struct, frozen=True, kw_only=True):
    """This message answers GetStacks with text, which is cut where it is too long."""

    threads: str  # the stack of each thread, outermost call first, at most 512 Ki characters
    tasks: str  # each task of the event loop with the lines it waits in, at most 512 Ki characters


class GetProfile(Struct, frozen=True, kw_only=True):
    """Ask a service where it spends CPU time in the next `seconds`, a number above 0."""

    seconds: float  # how long threads are sampled, more than 0 and at most 300


class Frame(Struct, frozen=True, kw_only=True):
    """One line of code of a profile."""

    function: str  # its qualified name
    file: str  # path of the source file
    line: int  # in the file


class ProfiledStack(Struct, frozen=True, kw_only=True):
    """One stack of a thread. `frames`: places in the profile's list of frames, innermost first."""

    thread: str  # name of the thread
    # places in the profile's list, innermost first, at most 128; empty = stacks beyond the limit, together
    frames: tuple[int, ...]
    nanoseconds: int  # CPU time that the thread used before it was seen here, since the sample before


class Profile(Struct, frozen=True, kw_only=True):
    """This message answers GetProfile. `frames` has each line of code once, and stacks name places in it."""

    frames: tuple[Frame, ...]  # each line of code once
    stacks: tuple[ProfiledStack, ...]  # at most 2001


class SetVerbosity(Struct, frozen=True, kw_only=True):
    """Ask a service to log with this `-v` until its process ends."""

    verbosity: int  # `-v` of the log; below 0 counts as 0


class VerbositySet(Struct, frozen=True, kw_only=True):
    """This message answers SetVerbosity with the verbosity (`-v`) that counts from now on."""

    verbosity: int  # that was set
