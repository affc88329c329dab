"""docs/limits.md has the numbers for what-if that the code has."""

from pathlib import Path

from services.cli.what_if import answers as what_if
from services.podsync.controllers.pod_previews import SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_limits_of_what_if_are_those_of_the_page() -> None:
    section = PAGE.read_text().partition("## Pods of what-if")[2].partition("\n## ")[0]
    rows = [line.split("|")[2].strip() for line in section.splitlines() if line.startswith("| ")][1:]
    expected = [f"{what_if.MOST_BYTES >> 20} MiB", f"{what_if.MOST_PODS}", f"{what_if.SECONDS:g}", f"{SECONDS:g}"]
    assert rows == expected
    assert 2 * SECONDS < what_if.SECONDS
