"""docs/limits.md has the numbers for what-if and the support bundle that the code has."""

from pathlib import Path

from services.cli.agent import support_bundle
from services.cli.what_if import answers as what_if
from services.podsync.controllers.pod_previews import TIMEOUT_SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def limits(heading: str) -> list[str]:
    """The second column of the table below the heading."""
    section = PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n###")[0]
    return [line.split("|")[2].strip() for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_limits_of_what_if_are_those_of_the_page() -> None:
    expected = [
        f"{what_if.MAX_FILE_BYTES >> 20} MiB",
        f"{what_if.MAX_PODS}",
        f"{what_if.TIMEOUT_SECONDS:g}",
        f"{TIMEOUT_SECONDS:g}",
    ]
    assert limits("Pods of what-if") == expected
    assert 2 * TIMEOUT_SECONDS < what_if.TIMEOUT_SECONDS


def test_the_limits_of_a_support_bundle_are_those_of_the_page() -> None:
    bundle = support_bundle
    expected = [
        f"{size >> 20} MiB" for size in (bundle.MAX_ARCHIVE_BYTES, bundle._MAX_LOG_BYTES, bundle._MAX_STORIES_BYTES)
    ]
    assert limits("Support bundle") == expected
