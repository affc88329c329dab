"""The quick copy and the quick check of types have the result of the slow ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.podspec import schema
from shared.podspec.schema import plain_copy, type_errors
from shared.podspec.usual_values import UnusualError, usual_copy

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["a", "\0", "ü"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@pytest.mark.long
@given(JSON, st.booleans())
def test_a_usual_copy_is_the_plain_copy(value: Any, nul: bool) -> None:
    try:
        copy = usual_copy(value, schema.MAX_DEPTH)
    except UnusualError:
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema, "usual_copy", _refuses)
        assert repr(plain_copy(value, nul=nul)) == repr((copy, []))


@given(JSON)
def test_a_copy_shares_nothing_that_can_change(value: Any) -> None:
    copy, errors = plain_copy(value)
    if not errors and isinstance(value, dict | list):
        assert copy is not value


def test_what_nests_too_deep_is_reported_by_the_slow_copy() -> None:
    value: Any = "x"
    for _ in range(schema.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(UnusualError):
        usual_copy(value, schema.MAX_DEPTH)
    assert "Too deep" in plain_copy(value)[1][0]


@pytest.mark.long
@given(JSON, JSON, JSON)
def test_the_quick_check_of_types_overlooks_nothing(containers: Any, volumes: Any, labels: Any) -> None:
    pod = {"metadata": {"labels": labels}, "spec": {"containers": containers, "volumes": volumes}}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema, "_fits", lambda *_: False)
        slow = type_errors(pod)
    assert type_errors(pod) == slow


def _refuses(*_: object) -> Any:
    raise UnusualError
