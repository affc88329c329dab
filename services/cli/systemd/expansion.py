"""Expands the words and variables of a unit as systemd.service(5) and systemd.exec(5) describe. Pure.

systemd has removed the quotes of ExecStart= and Environment= and replaced the specifiers when it read the unit. What is
left for each start: the environment files, and the variables in the words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

_SPACE = " \t\n\r"
_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Matches a comment, or a name and its value. A value has quoted parts, which may contain line breaks, and then text up
# to the end of the line. White space belongs to the line before it: taken as the beginning of a line, a long run of it
# at the end would be tried again for each character.
_LINE = re.compile(
    r"""(?: [#;] [^\n\r]*
    | (?P<name> [^ \t\n\r#;] [^=\n\r]* )
      (?: = (?P<quoted> (?: [ \t]* (?: '[^']* (?:'|\Z) | "(?: \\. | [^"\\] )* (?:"|\\?\Z) ) )* )
            [ \t]* (?P<plain> (?: \\. | [^\\\n\r] )* ) )? ) [ \t\n\r]*""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'([^']*)'? | "((?: \\. | [^"\\] )*)"?""", re.VERBOSE | re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CHARACTER = re.compile(r"\\.|[^\\]", re.DOTALL)


def expand_words(words: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """Return the words with their variables replaced. A separate word `$NAME` becomes the words of the value, which may
    be none; `${NAME}` becomes the value, and `$$` a dollar sign. An unset variable is empty.
    """
    found: list[str] = []
    for word in words:
        if _is_reference(word):
            found += split_words(variables.get(word[1:], ""))
        else:
            found.append(
                _REFERENCE.sub(lambda match: variables.get(match[1], "") if match[1] is not None else "$", word)
            )
    return found


def referenced_names(words: Iterable[str]) -> Iterator[str]:
    """Yield the names of the variables in the words, in order."""
    for word in words:
        if _is_reference(word):
            yield word[1:]
        else:
            yield from (match[1] for match in _REFERENCE.finditer(word) if match[1])


def split_words(text: str) -> list[str]:
    """Return the words of a variable's value. Both quotes keep white space, a backslash keeps the next character, and a
    quote that is not closed ends with the text.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            word = (word or "") + next(characters, "")
        elif character == quote:
            quote = ""
        elif quote:
            word = (word or "") + character
        elif character in "'\"":
            word, quote = word or "", character
        elif character not in _SPACE:
            word = (word or "") + character
        elif word is not None:
            words.append(word)
            word = None
    return words if word is None else [*words, word]


def variables_of(environment: Iterable[str], files: Iterable[str] = (), unset: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables, by name. `environment`: NAME=value, of Environment=; `files`: the texts of the environment
    files, of which later ones win; `unset`: names, or NAME=value, of UnsetEnvironment=.
    """
    found = [word.partition("=")[::2] for word in environment if "=" in word]
    for text in files:
        found += read_assignments(text)
    variables = {name: value for name, value in found if _NAME.fullmatch(name)}
    for word in unset:
        name, sign, value = word.partition("=")
        if not sign or variables.get(name) == value:
            variables.pop(name, None)
    return variables


def read_assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an environment file, also names that systemd ignores."""
    for line in _LINE.finditer(text.lstrip(_SPACE)):
        if line["plain"] is not None:
            quoted = (
                _unescape_quoted(match[2]) if match[1] is None else match[1]
                for match in _QUOTED.finditer(line["quoted"])
            )
            yield line["name"].rstrip(_SPACE), "".join(quoted) + _unescape_plain(line["plain"])


def _is_reference(word: str) -> bool:
    return word.startswith("$") and not word.startswith(("$$", "${"))


def _unescape_quoted(text: str) -> str:
    """Return the text between double quotes with its escapes replaced; a backslash escapes the same characters as in a
    shell."""
    return _ESCAPED.sub(lambda match: match[1] if match[1] in '"\\`$' else "" if match[1] == "\n" else match[0], text)


def _unescape_plain(text: str) -> str:
    """Return the text without quotes: a backslash keeps the next character, or joins the next line; white space at the
    end does not count.
    """
    found: list[str] = []
    length = 0
    for part in _CHARACTER.findall(text):
        found.append("" if part in ("\\\n", "\\\r") else part[-1])
        if part not in _SPACE:
            length = len(found)
    return "".join(found[:length])
