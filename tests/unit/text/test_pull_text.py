"""How far a pull is, in words."""

from typing import Any

import pytest

from shared.story.lines import Kind
from shared.story.sentences import sentence
from shared.text.pull_text import pull_text

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            {"arrived": 43 * MEBIBYTE, "total": 120 * MEBIBYTE, "layers": 3, "rate": 12 * MEBIBYTE},
            "43 MiB of 120 MiB, 3 layers, 12 MiB/s",
        ),
        (
            {"arrived": MEBIBYTE, "total": 2 * MEBIBYTE, "layers": 1, "rate": 0, "idle": 40.0},
            "1.0 MiB of 2.0 MiB, 1 layer, no bytes for 40s",
        ),
        ({"arrived": 5, "total": 5, "layers": 2, "idle": 300.0}, "all 5 B are there, unpacking, 2 layers"),
        ({"seconds": 130.0, "idle": 130.0}, "for 2m10s, no bytes for 2m10s"),
        (
            {"arrived": 1, "total": 9, "layers": 1, "rate": 1, "shared_with": ["a:1", "a:2"]},
            "1 B of 9 B, 1 layer, 1 B/s, together with a:1, a:2",
        ),
        ({}, "for 0s"),
    ],
)
def test_the_text(item: dict[str, Any], text: str) -> None:
    assert pull_text(item) == text


def test_a_story_has_the_progress_and_the_final_size() -> None:
    line = {"what": Kind.PULL, "image": "a:1", "arrived": 5, "total": 10, "layers": 1, "rate": 2}
    assert sentence(line) == "pulling image a:1: 5 B of 10 B, 1 layer, 2 B/s"
    done = {"what": Kind.DONE, "call": "PullImage", "image": "a:1", "took": 12.5, "bytes": 120 * MEBIBYTE}
    assert sentence(done) == "image a:1 is pulled, after 12.50 s (120 MiB)"
