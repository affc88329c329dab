"""What the API server is known to have: the newest of what was shown and what was answered, with its doubts."""

from typing import Any

import pytest

from services.status.core.pod_status_baseline import Baseline, kept_of, newest


def at(version: Any) -> Any:
    return {"metadata": {"resourceVersion": version}}


@pytest.mark.parametrize(
    ("watched", "answered", "in_step", "expected"),
    [
        (None, None, True, Baseline(None, certain=False)),
        (at("5"), None, True, Baseline(at("5"), certain=True)),
        (at("5"), None, False, Baseline(at("5"), certain=False)),
        (None, at("5"), False, Baseline(at("5"), certain=True)),
        (at("9"), at("10"), False, Baseline(at("10"), certain=True)),
        (at("10"), at("9"), True, Baseline(at("10"), certain=True)),
        (at("10"), at("9"), False, Baseline(at("10"), certain=False)),
        (at("10"), at("10"), False, Baseline(at("10"), certain=True)),
        (at("abc"), at("10"), True, Baseline(at("abc"), certain=False)),
        (at("9" * 5000), at("10"), True, Baseline(at("9" * 5000), certain=False)),
        (at(7), at("10"), True, Baseline(at(7), certain=False)),
    ],
)
def test_the_newest_counts(watched: Any, answered: Any, in_step: bool, expected: Baseline) -> None:
    assert newest(watched, answered, in_step=in_step) == expected


def test_an_answer_is_kept_without_what_no_decision_needs() -> None:
    answer = {
        "metadata": {"name": "web", "uid": "u", "annotations": {"big": "x"}},
        "spec": {"x": 1},
        "status": {"a": 1},
    }
    assert kept_of(answer) == {"metadata": {"name": "web", "uid": "u"}, "status": {"a": 1}}
    assert kept_of({"metadata": "odd", "status": []}) == {"metadata": {}, "status": {}}
