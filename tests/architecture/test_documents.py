"""The documents agree with the code and with each other, and name nothing that exists on one machine only."""

import re
from pathlib import Path

import pytest

from tests.architecture.checkout import CHECKOUT, text_of, tracked_files

DOCUMENTS = [name for name in tracked_files() if name.endswith(".md")]
# Spelt in pieces so that this file does not name what it forbids.
PACKAGE_HOSTS = [
    ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("debian", "org"), ("npmjs", "org"))
]
MACHINE_PATHS = ["/" + "work/", "/root/" + "."]
# A lock file of a thousand hashes and a licence are not ours to phrase.
NOT_OURS = {"LICENSE", "requirements.lock", "requirements-dev.lock"}


def test_every_link_of_a_document_leads_somewhere(subtests: pytest.Subtests) -> None:
    for document in DOCUMENTS:
        with subtests.test(document):
            broken = []
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text_of(document))):
                path, _, anchor = target.partition("#")
                if "://" in target:
                    continue
                file = (CHECKOUT / document).parent / path if path else CHECKOUT / document
                if not file.exists() or (anchor and anchor not in anchors(file)):
                    broken.append(target)
            assert not broken


def anchors(document: Path) -> set[str]:
    """The anchors that headings of a Markdown file get."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_file_and_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        text = text_of(document)
        assert not set(re.findall(r"`make ([a-z-]+)`", text)) - targets
        named = re.findall(r"`((?:bus|services|shared|tests|tools|examples|systemd)/[\w./-]*)`", text)
        assert not [name for name in named if not (CHECKOUT / name).exists()], document


@pytest.mark.parametrize("word", [*PACKAGE_HOSTS, *MACHINE_PATHS])
def test_no_file_speaks_of_one_machine_or_of_a_package_host(word: str) -> None:
    speaking = []
    for name in tracked_files():
        if name in NOT_OURS:
            continue
        try:
            text = text_of(name)
        except UnicodeDecodeError:
            continue  # a golden file that is not text
        if word in text:
            speaking.append(name)
    assert not speaking


def test_no_document_counts_issues() -> None:
    speaking = [
        name for name in tracked_files() if name not in NOT_OURS and name.endswith((".md", ".py", ".conf", ".yaml"))
    ]
    assert not [name for name in speaking if re.search(r"(?i)\bissue\s+#?\d", text_of(name))]
