"""What is wrong with a configuration: one readable line per problem, all of them. Pure; knows no field."""

from dataclasses import dataclass, field


class ConfigurationRefusedError(Exception):
    """The configuration cannot be used; `lines` says why, one problem each, with place and remedy."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


@dataclass
class Findings:
    """Collects problems; a key's place is `file:line:column`, a flag, or just the file where the key is absent."""

    places: dict[str, str] = field(default_factory=dict)  # dotted key -> place
    default_place: str = ""
    lines: list[str] = field(default_factory=list)

    def place_of(self, key: str) -> str:
        """The place of the key, or of the nearest enclosing one that was given."""
        while key not in self.places and "." in key:
            key = key.rpartition(".")[0]
        return self.places.get(key, self.default_place)

    def add(self, key: str, what: str, remedy: str = "", place: str = "") -> None:
        """Note one problem; the same line twice is kept once."""
        place = place or self.place_of(key)
        named = "" if place.startswith("--") else key  # a flag already names what it sets
        line = ": ".join(part for part in (place, named, what) if part) + (f" ({remedy})" if remedy else "")
        if line not in self.lines:
            self.lines.append(line)

    def refuse_if_any(self) -> None:
        """Raise ConfigurationRefusedError when something was found."""
        if self.lines:
            raise ConfigurationRefusedError(tuple(self.lines))
