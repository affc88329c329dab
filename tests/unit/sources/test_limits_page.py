"""docs/limits.md has the numbers of sources that the code has."""

from pathlib import Path

from services.sources.adapters import manifest_url
from services.sources.core import url_source
from services.sources.core.yaml_document import MAX_BYTES

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_rows_for_the_static_pod_url_are_what_the_code_has() -> None:
    sizes = f"{MAX_BYTES >> 20} MiB; {manifest_url.MAX_REDIRECTS}; {url_source.MOST_PODS}"
    rows = (
        f"| seconds from the connection to the last byte | {manifest_url.TIMEOUT:.0f} |",
        f"| bytes of the document; redirects; pods of it | {sizes} |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]
