"""What a failed comparison prints."""

import pytest

from tests.support.recorded.differences import Difference, assert_same, differences


def test_each_place_is_a_line_with_its_pointer(subtests: pytest.Subtests) -> None:
    for actual, expected, lines in [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["/a/b/1: actual 2, expected 3"]),
        ({"a": 1}, {"b/c": 1}, ["/a: actual 1, expected nothing", "/b~1c: actual nothing, expected 1"]),
        ([1], [1, 2], ["/1: actual nothing, expected 2"]),
        ([1, 2], [1], ["/1: actual 2, expected nothing"]),
        ({"a": []}, {}, []),
        ({"a": None}, {"a": {"b": 1}}, ["/a/b: actual nothing, expected 1"]),
        ({"a": 0}, {"a": False}, []),
        ({"a": ""}, {"a": 0}, ["/a: actual '', expected 0"]),
        (
            [{"mountPath": "/x"}, {"mountPath": "/y"}],
            [{"mountPath": "/y"}],
            ["/~1x/mountPath: actual '/x', expected nothing"],
        ),
        (
            [{"mountPath": "/x"}, {"mountPath": "/y"}],
            [{"mountPath": "/y"}, {"mountPath": "/x"}],
            ["/order: actual ['/x', '/y'], expected ['/y', '/x']"],
        ),
        (1, "1", ["/: actual 1, expected '1'"]),
    ]:
        with subtests.test(f"{actual!r:.80}"):
            assert [str(found) for found in differences(actual, expected)] == lines


def test_a_pattern_matches_its_place_and_what_is_below() -> None:
    found = Difference("/containerStatuses/0/resources/limits", 1, 2)
    assert found.matches("/containerStatuses/*/resources")
    assert found.matches("/containerStatuses/0/resources/limits")
    assert not found.matches("/containerStatuses/*/res")
    assert not found.matches("/initContainerStatuses/*/resources")


def test_unequal_values_fail_even_where_no_place_differs() -> None:
    assert_same({"a": []}, {"a": []})
    with pytest.raises(AssertionError, match=r"actual {'a': \[\]}, expected {}"):
        assert_same({"a": []}, {})
