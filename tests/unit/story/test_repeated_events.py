"""An event that repeats the one before it is no line of the story."""

from bus.messages.event import KubeEvent
from services.podsync.core.pod.instructions import RecordEvent
from services.podsync.core.story import StoryLines


def event(reason: str, message: str, container: str) -> RecordEvent:
    field = f"spec.containers{{{container}}}"
    return RecordEvent(event=KubeEvent(type="Normal", reason=reason, message=message, uid="u1", field_path=field))


def test_an_event_is_a_line_where_it_differs_from_the_one_before() -> None:
    story_lines = StoryLines(boot=3)
    same, other_reason = event("A", "m", "c"), event("B", "m", "c")
    other_message, other_container = event("B", "n", "c"), event("B", "n", "d")
    events = (same, same, other_reason, other_message, other_container, other_container, same)
    lines = [line for one in events for line in story_lines.describe("u1", one) if line["what"] == "event"]
    assert [(line["reason"], line["message"], line["container"]) for line in lines] == [
        ("A", "m", "c"),
        ("B", "m", "c"),
        ("B", "n", "c"),
        ("B", "n", "d"),
        ("A", "m", "c"),
    ]
