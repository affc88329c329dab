"""How many of its examples of hypothesis, and of its cases, a test has in `make quick` and in `make test`."""

from collections import Counter
from collections.abc import Iterable

import hypothesis
import pytest

QUICK = 4  # one in so many


def examples(number: int) -> int:
    """For `settings(max_examples=...)`: the number, or its share in the short lane."""
    return number // QUICK if hypothesis.settings.get_current_profile_name() == "quick" else number


def is_in_share(case: int, of: int) -> bool:
    """Whether the case with this number is in a share of one of `of`: one of each `of` that follow each other, by turns
    the first, the second and so on, so that each value of each argument comes."""
    return case % of == case // of % of


def mark_shares(items: Iterable[pytest.Item]) -> None:
    """Mark as `long` what is not in the share that `make quick` runs of a test that is marked `share(of)`. Where it is
    marked `share(of, test=others)`, `make test` runs one of `others` of the long ones, and the rest are marked
    `night`."""
    cases: Counter[str] = Counter()  # by test, without those that are long by their own mark
    long: Counter[str] = Counter()
    for item in items:
        if (share := item.get_closest_marker("share")) is None:
            continue
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("long") is None:
            if not is_in_share(cases[test], share.args[0]):
                item.add_marker("long")
            cases[test] += 1
        if item.get_closest_marker("long") is not None:
            if not is_in_share(long[test], share.kwargs.get("test", 1)):
                item.add_marker("night")
            long[test] += 1
