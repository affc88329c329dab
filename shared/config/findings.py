"""Collects what is wrong with a configuration: one readable line per problem, all of them. Pure; knows no field."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

_MAX_FINDINGS = 100  # findings that are kept; the operator corrects those first
_MAX_PART_CHARACTERS = 500  # of one part of a line

ERROR = "error"  # the configuration cannot be used
STRICT = "strict"  # the key is ignored and the kubelet at most logs it; `bulkhead config check` counts it as an error
DANGER = "danger"  # works, and lets strangers in: an error line at the start, an error of `bulkhead config check`
WARNING = "warning"
NOTE = "note"


class Finding(Struct, frozen=True):
    """One problem. `place` is `file:line:column`, `file`, or a flag; `key` is dotted, "" = the document or flag."""

    severity: str
    key: str
    message: str
    remedy: str = ""
    place: str = ""

    @property
    def line(self) -> str:
        """Place, key, problem, and the remedy in parentheses."""
        named = "" if self.place.startswith("--") else self.key  # a flag already names what it sets
        parts = ": ".join(part for part in (self.place, named, self.message) if part)
        return parts + (f" ({self.remedy})" if self.remedy else "")


class ConfigurationRefusedError(Exception):
    """The configuration cannot be used; `lines` are the reasons, one problem each, with place and remedy.

    `exit_code` is what the kubelet would end with: 2 for bad feature gates in a file, else 1 (config.md 3.9).
    """

    def __init__(self, lines: tuple[str, ...], exit_code: int = 1, findings: tuple[Finding, ...] = ()) -> None:
        self.lines, self.exit_code = lines, exit_code
        self.findings = findings or tuple(Finding(ERROR, "", line) for line in lines)
        super().__init__("\n".join(lines))


@dataclass
class Findings:
    """Collects problems; a key's place is `file:line:column`, a flag, or just the file where the key is absent."""

    places: dict[str, str] = field(default_factory=dict)  # dotted key -> place
    default_place: str = ""
    found: list[Finding] = field(default_factory=list)
    exit_code: int = 1
    left_out: int = 0  # beyond the first hundred

    @property
    def lines(self) -> list[str]:
        """The lines of what refuses the configuration."""
        return [finding.line for finding in self.found if finding.severity == ERROR]

    @property
    def full(self) -> bool:
        """Whether what is added now will only be counted."""
        return len(self.found) >= _MAX_FINDINGS

    def place_of(self, key: str) -> str:
        """Return the place of the key, or of the nearest enclosing one that was given."""
        while key not in self.places and "." in key:
            key = key.rpartition(".")[0]
        return self.places.get(key, self.default_place)

    def add(self, key: str, what: str, remedy: str = "", place: str = "", severity: str = ERROR) -> None:
        """Note one problem; the same line twice is kept once."""
        place = place or self.place_of(key)
        self._keep(Finding(severity, *(_one_line(part) for part in (key, what, remedy, place))))

    def include(self, others: "Findings") -> None:
        """Add what another collection found."""
        self.exit_code = max(self.exit_code, others.exit_code)
        for finding in others.found:
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        if finding in self.found:
            return
        errors = sum(known.severity == ERROR for known in self.found) if self.full else 0
        if self.full and not (finding.severity == ERROR and errors == 0):  # an error is never lost behind remarks
            self.left_out += 1
            return
        self.found.append(finding)

    def refuse_if_any(self) -> None:
        """Raise ConfigurationRefusedError when something was found that refuses the configuration."""
        if any(finding.severity == ERROR for finding in self.found):
            shown = tuple(finding for finding in self.found if finding.severity in (ERROR, STRICT))
            lines = [finding.line for finding in shown]
            if self.left_out:
                lines.append(f"and {self.left_out} more (correct these first)")
            raise ConfigurationRefusedError(tuple(lines), self.exit_code, tuple(self.found))


def _one_line(given: Any) -> str:
    """Return the text without line breaks and control characters, and not without end."""
    text = str(given)
    if len(text) > _MAX_PART_CHARACTERS:
        text = f"{text[: _MAX_PART_CHARACTERS - 60]}…{text[-50:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
