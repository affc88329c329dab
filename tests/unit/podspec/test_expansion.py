"""$(VAR) is replaced by the rules of pods.md B.5, and no text is too strange for it."""

import tracemalloc
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.podspec.exec_space import MAX_STRING_BYTES, TooLongError
from shared.podspec.expansion import expand, expand_strictly

ENV = {"A": "value", "B": "$(A)", "EMPTY": ""}


def test_references_are_replaced_once(subtests: pytest.Subtests) -> None:
    for text, expanded in [
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
        ("$(A)$($$(", "value$($("),
        ("", ""),
    ]:
        with subtests.test(text):
            assert expand(text, ENV) == expanded


def test_the_first_environment_wins() -> None:
    assert expand("$(A) $(S)", {"A": "own"}, {"A": "service", "S": "service"}) == "own service"


def test_a_subpath_misses_what_is_undefined_or_empty() -> None:
    assert expand_strictly("d-$(A)", ENV, longest=100) == ("d-value", ())
    assert expand_strictly("$(X)/$(EMPTY)/$(X)/$$(Y)", ENV, longest=100) == ("///$(Y)", ("X", "EMPTY"))


@given(st.text(alphabet="$()AB x", max_size=30))
def test_expansion_never_raises_and_leaves_texts_without_dollars_alone(text: str) -> None:
    expanded = expand(text, ENV)
    expand_strictly(text, ENV, longest=100)
    if "$" not in text:
        assert expanded == text


@given(st.text(max_size=40))
def test_doubled_dollars_come_out_as_they_were_meant(text: str) -> None:
    assert expand(text.replace("$", "$$"), ENV) == text


@pytest.mark.parametrize("part", ["$(", "$$", "$", "$(A", "$$(", "$)", "$()"])
def test_a_long_text_costs_time_in_proportion_to_its_length(part: str) -> None:
    text = part * (MAX_STRING_BYTES // len(part))
    before = process_time()
    expand(text, ENV)
    assert process_time() - before < 0.5


def test_a_text_may_be_as_long_as_the_kernel_takes_it() -> None:
    assert len(expand("$(X)$(X)x", {"X": "x" * (MAX_STRING_BYTES // 2)})) == MAX_STRING_BYTES
    with pytest.raises(TooLongError):
        expand("$(X)$(X)xx", {"X": "x" * (MAX_STRING_BYTES // 2)})
    with pytest.raises(TooLongError):
        expand("$(X)$(X)", {"X": "ä" * (MAX_STRING_BYTES // 3)})
    with pytest.raises(TooLongError):
        expand_strictly("$(A)$(A)", ENV, longest=9)


def test_a_text_that_would_become_too_long_is_never_built() -> None:
    environment = {"X": "x" * 100_000}
    text = "$(X)" * 30_000  # 3 GB
    tracemalloc.start()
    try:
        with pytest.raises(TooLongError):
            expand(text, environment)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
