"""docs/limits.md has the numbers for answers of the API server that the code has."""

from pathlib import Path

from shared.kube.interface import LONGEST_RETRY_AFTER

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_row_for_retry_after_is_what_the_code_has() -> None:
    seconds = f"{LONGEST_RETRY_AFTER:.0f}"
    row = f"{seconds} | the request is sent again after {seconds} s |"
    assert f"\n| seconds for which a Retry-After holds requests back | {row}\n" in PAGE.read_text()
