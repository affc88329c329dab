"""Every citation of docs/reference resolves, in code, tests and documents; CONTRIBUTING.md defines its form."""

import re
from functools import cache

import pytest

from tests.architecture.checkout import text_of, tracked_files

REFERENCE = {
    name.rpartition("/")[2]: name for name in tracked_files() if re.fullmatch(r"docs/reference/[a-z]+\.md", name)
}
FILE = "|".join(re.escape(name) for name in REFERENCE)
BREAK = r"\s(?:\s*#)?\s*"  # a citation may go on in the next line of a comment
NUMBER = r"(?:[A-F](?:\.\d+)*|\d+(?:\.\d+)*)\b"
REF = rf'{NUMBER}(?:-{NUMBER})?(?:{BREAK}"[^"\n]+")?'
CITATION = re.compile(rf"\b({FILE})(?:{BREAK}({REF}(?:,{BREAK}{REF})*))?")
ONE = re.compile(rf'({NUMBER})(?:-({NUMBER}))?(?:{BREAK}"([^"]+)")?')
CITING = [
    name
    for name in tracked_files()
    if name.endswith((".py", ".md", ".conf", ".toml", ".service", "Makefile"))
    and name not in ("CHANGELOG.md", "tests/architecture/test_citations.py")
    and not name.startswith("tests/recordings/")
]


@cache
def sections(file: str) -> dict[str, str]:
    """Number of a section -> its text, sub-sections included."""
    text = text_of(REFERENCE[file])
    headings = list(re.finditer(r"^(#+) (?:Appendix )?([A-F](?:\.\d+)?|\d+(?:\.\d+)*)\b[^\n]*$", text, re.MULTILINE))
    found: dict[str, str] = {}
    for place, heading in enumerate(headings):
        after = (later.start() for later in headings[place + 1 :] if len(later[1]) <= len(heading[1]))
        assert heading[2] not in found, f"{file} has two sections {heading[2]}"
        found[heading[2]] = text[heading.start() : next(after, len(text))]
    return found


def problem(file: str, number: str, passage: str = "") -> str:
    """Why the citation of this section, item or passage does not resolve; empty where it does."""
    known = sections(file)
    if number not in known:
        section, _, item = number.rpartition(".")
        if section not in known:
            return f"{file} has no section {number}"
        own = known[section].split("\n#")[0]
        if not re.search(rf"(?:^|[\s(*]){item}\. ", own):
            return f"{file} {section} has no item {item}"
    elif passage and passage not in known[number]:
        return f'{file} {number} has no passage "{passage}"'
    return ""


def problems(text: str, *, bare: bool) -> list[str]:
    """What does not resolve in one text. `bare`: a file may be named without a section."""
    found = []
    for citation in CITATION.finditer(text):
        file, numbers = citation.groups()
        if not numbers:
            if not bare and not text[: citation.start()].endswith(("/", "(", "[")):
                found.append(f"{file} without a section")
            continue
        for one in ONE.finditer(numbers):
            found += [problem(file, number, one[3] or "") for number in one.groups()[:2] if number]
    return [what for what in found if what]


def test_every_citation_resolves() -> None:
    assert not [f"{name}: {what}" for name in CITING for what in problems(text_of(name), bare=name.startswith("docs/"))]


@pytest.mark.parametrize("file", REFERENCE)
def test_the_reference_cites_its_own_sections(file: str) -> None:
    cited = re.findall(r"§([A-F]?\d*(?:\.\d+)*)", text_of(REFERENCE[file]))
    assert not [number for number in cited if number and problem(file, number)]


@pytest.mark.parametrize(
    "citation",
    ["pods.md 99.1", "pods.md 5.1.99", 'pods.md 5.3 "No such words"', "pods.md 5.1, 77", "node.md 4.1-4.99", "pods.md"],
)
def test_a_citation_that_leads_nowhere_is_found(citation: str) -> None:
    assert problems(f"see ({citation}).", bare=False) or problems(f"x {citation}", bare=False)
