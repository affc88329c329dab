"""The documents as a site: mkdocs renders all of them without a warning, and a browser needs no other host."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.checkout import CHECKOUT, tracked_files

pytestmark = pytest.mark.long  # mkdocs needs some seconds; `make docs` shows the same while one writes

ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return directory


def test_every_document_is_a_page(site: Path) -> None:
    for name in tracked_files():
        if name.endswith(".md") and not name.startswith("tests/"):
            path = name.removesuffix(".md").removesuffix("README")
            assert (site / path / "index.html").exists(), name


def test_no_list_and_no_table_is_shown_as_its_source(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.DOTALL):
            if re.search(r"^\s*([-*] |\d\. |\|)", paragraph, re.MULTILINE) or "```" in paragraph:
                broken.append((str(page.relative_to(site)), paragraph[:200]))
    assert not broken


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    scripts = r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//'
    styles = r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(?:https?:)?//'
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    assert not [page.name for page in pages if re.search(f"{scripts}|{styles}", page.read_text(encoding="utf-8"))]
