"""$(VAR) is replaced as pods.md B.5 says, and no text is too strange for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.podspec.expansion import expand, expand_strictly

ENV = {"A": "value", "B": "$(A)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "value"),
        ("$(UNDEF)", "$(UNDEF)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$value"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$$", "$"),
        ("end$", "end$"),
        ("$()", "$()"),
        ("$(B)", "$(A)"),
        ("a$(A)b$(EMPTY)c", "avaluebc"),
        ("$($(A)", "$($(A)"),
        ("", ""),
    ],
)
def test_references_are_replaced_once(text: str, expanded: str) -> None:
    assert expand(text, ENV) == expanded


def test_the_first_environment_wins() -> None:
    assert expand("$(A) $(S)", {"A": "own"}, {"A": "service", "S": "service"}) == "own service"


def test_a_subpath_misses_what_is_undefined_or_empty() -> None:
    assert expand_strictly("d-$(A)", ENV) == ("d-value", ())
    assert expand_strictly("$(X)/$(EMPTY)/$(X)/$$(Y)", ENV) == ("///$(Y)", ("X", "EMPTY"))


@given(st.text(alphabet="$()AB x", max_size=30))
def test_expansion_never_raises_and_leaves_texts_without_dollars_alone(text: str) -> None:
    expanded = expand(text, ENV)
    expand_strictly(text, ENV)
    if "$" not in text:
        assert expanded == text


@given(st.text(max_size=40))
def test_doubled_dollars_come_out_as_they_were_meant(text: str) -> None:
    assert expand(text.replace("$", "$$"), ENV) == text
