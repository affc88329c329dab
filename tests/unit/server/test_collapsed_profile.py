"""What a profile of several processes looks like as text."""

from bus.messages.debugging import Frame, Profile, ProfiledStack
from services.server.core.pages.collapsed_profile import collapsed_profile

FRAMES = (Frame(function="turn", file="/a/pods.py", line=7), Frame(function="a;b", file="x y.py", line=1))


def test_a_line_has_the_process_the_functions_outermost_first_and_microseconds() -> None:
    stacks = (
        ProfiledStack(thread="MainThread", frames=(0, 1), nanoseconds=29_000_999),
        ProfiledStack(thread="MainThread", frames=(0, 9), nanoseconds=10),
        ProfiledStack(thread="", frames=(), nanoseconds=5000),
    )
    text = collapsed_profile({"pleg": Profile(frames=FRAMES, stacks=stacks), "volume": "no answer;\nlate"})
    assert text.splitlines() == [
        "pleg;a,b (x y.py:1);turn (pods.py:7) 29000",
        "pleg;turn (pods.py:7) 1",
        "pleg;(other) 5",
        "volume;(no answer, late) 1",
    ]


def test_the_time_of_threads_with_one_stack_is_one_line() -> None:
    stacks = tuple(ProfiledStack(thread=f"worker-{n}", frames=(0,), nanoseconds=1500) for n in range(4))
    assert collapsed_profile({"pleg": Profile(frames=FRAMES, stacks=stacks)}) == "pleg;turn (pods.py:7) 6\n"
