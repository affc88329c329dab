"""The grammar of the kubelet's command line (config.md 3.2): argv to values of configuration keys and flags.

It is that of Go's pflag, whose messages it keeps, each with what to do about it. The first error wins. Which flags
there are is in `flag_table`, what a text becomes in `flag_values`. Knows no files and no defaults.
"""

from dataclasses import dataclass, field
from typing import Any

from shared.config.fields import FlagKind
from shared.config.findings import ConfigurationRefusedError
from shared.config.flag_table import FLAGS, REMOVED_FLAGS, WINDOWS_FLAGS, Flag
from shared.config.flag_text import MASKED, shown
from shared.config.flag_values import IGNORED, parse_value
from shared.config.spelling import closest, why_unusable
from shared.log.klog import go_quote

_SHORTHANDS = {flag.shorthand: flag for flag in FLAGS.values() if flag.shorthand}
_MAX_ARGUMENT_BYTES = 131072  # of one argument; Linux passes no longer one to a program
_REMEDIES = {
    FlagKind.BOOL: "give true or false, after =",
    FlagKind.INT32: "give a whole number",
    FlagKind.INT: "give a whole number",
    FlagKind.FLOAT64: "give a number",
    FlagKind.DURATION: "give numbers with units h, m, s, ms, us, ns, such as 1m30s",
    FlagKind.STRINGS: 'separate them by commas, and put quotes around all of one that holds a comma or "',
    FlagKind.MAP: "write name=value,name=value",
    FlagKind.THRESHOLDS: "write signal<value,signal<value, in quotes because of the shell",
    FlagKind.PAIR: "write name=value, and give the flag once for each",
    FlagKind.GATES: "write Name=true,Name=false",
    FlagKind.IP: "such as 0.0.0.0 or ::1",
    FlagKind.QUANTITY: "such as 512, 2Ki or 4Gi",
    FlagKind.LEVEL: "give a whole number from 0 to 2147483647",
    FlagKind.VMODULE: "write pattern=N,pattern=N",
    FlagKind.RESERVED_MEMORY: "such as 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=2Gi",
    FlagKind.TAINTS: "write key=value:effect,key:effect; effects are NoSchedule, PreferNoSchedule, NoExecute",
    FlagKind.MULTIMAP: "write name:value,name:value",
    FlagKind.VERSION: "write --version, --version=raw, or the version to report",
}


@dataclass
class Flags:
    """The parsed command line; maps and lists have the value after all occurrences."""

    own: dict[str, Any] = field(default_factory=dict)  # flags given that set no key, by name: str, bool, int or dict
    fields: dict[str, Any] = field(default_factory=dict)  # dotted key -> value as a file has it
    places: dict[str, str] = field(default_factory=dict)  # dotted key -> the flag, with its dashes
    deprecations: tuple[str, ...] = ()  # lines for standard error, in the order the flags were given
    without_effect: tuple[str, ...] = ()  # flags given, with dashes, that set no key and that nothing acts on
    asks_help: bool = False
    version: str = ""  # "" | "true" | "raw" | the version to report, "v…"


class FlagsRefusedError(ConfigurationRefusedError):
    """The command line cannot be read. `deprecations` are those of the flags before the bad one."""

    def __init__(self, line: str, deprecations: tuple[str, ...]) -> None:
        self.deprecations = deprecations
        super().__init__((line,))


class _BadArgumentError(Exception):
    """`str()` is the one line for the operator."""


def parse_flags(arguments: list[str]) -> Flags:
    """Parse kubelet flags; the first error wins. Raises FlagsRefusedError with one line."""
    reader = _Reader()
    try:
        reader.read(arguments)
    except _BadArgumentError as error:
        raise FlagsRefusedError(str(error), tuple(reader.deprecations.values())) from None
    return reader.flags()


class _Reader:
    """Reads arguments one after the other, remembering the values so far."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.deprecations: dict[str, str] = {}
        self._positional: list[str] = []
        self._last = ""  # the word before the first positional one

    def read(self, arguments: list[str]) -> None:
        """All arguments. Raises _BadArgumentError."""
        for number, argument in enumerate(arguments, start=1):
            _check(argument, number)
        rest = list(reversed(arguments))
        while rest:
            word = rest.pop()
            if word == "--":
                self._positional += reversed(rest)
                break
            if word.startswith("--"):
                self._long(word, rest)
            elif len(word) > 1 and word.startswith("-"):
                self._short(word[1:], rest)
            else:
                self._positional.append(word)
            if not self._positional:
                self._last = word
        if self._positional:
            raise _BadArgumentError(f"unknown command {shown(self._positional[0])} ({self._positional_remedy()})")

    def _positional_remedy(self) -> str:
        name = self._last.lstrip("-").replace("_", "-")
        if name in FLAGS and _takes_no_word(FLAGS[name]):
            return f"--{name} takes its value after =, as in --{name}={_fitting(self._positional[0])}"
        return "flags begin with --"

    def _long(self, word: str, rest: list[str]) -> None:
        name, equals, value = word[2:].partition("=")
        if not name or name.startswith("-"):
            raise _BadArgumentError(f"bad flag syntax: {_cut(word)} (write --name=value)")
        flag = FLAGS.get(name.replace("_", "-"))
        if flag is None:
            raise _BadArgumentError(f"unknown flag: --{_cut(name)} ({_unknown_remedy(name.replace('_', '-'))})")
        if equals:
            self._set(flag, value)
        elif _takes_no_word(flag):
            self._set(flag, "true")
        elif rest:
            self._set(flag, rest.pop())
        else:
            raise _BadArgumentError(f"flag needs an argument: {word} (give it as --{flag.name}=value)")

    def _short(self, letters: str, rest: list[str]) -> None:
        """Read a cluster of one-letter flags, the last of which may have a value."""
        cluster = letters
        while letters:
            letter, value = letters[0], letters[1:]
            flag = _SHORTHANDS.get(letter)
            if flag is None:
                quoted = {"'": r"\'", '"': '"'}.get(letter, go_quote(letter)[1:-1])
                long = cluster.partition("=")[0].replace("_", "-")
                remedy = f"did you mean --{long}?" if long in FLAGS else "the only ones are -h and -v"
                raise _BadArgumentError(f"unknown shorthand flag: '{quoted}' in -{_cut(letters)} ({remedy})")
            if len(value) > 1 and value[0] == "=":
                return self._set(flag, value[1:])
            if _takes_no_word(flag):
                self._set(flag, "true")
                letters = value
            elif value:
                return self._set(flag, value)
            elif rest:
                return self._set(flag, rest.pop())
            else:
                raise _BadArgumentError(f"flag needs an argument: '{letter}' in -{letters} (such as -{letter}=2)")
        return None

    def _set(self, flag: Flag, text: str) -> None:
        try:
            value = parse_value(flag.kind, text, self.given.get(flag.name))
            if flag.choices and value not in flag.choices:
                raise ValueError(f"must be {' or '.join(flag.choices)}")
        except ValueError as error:
            name = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            remedy = _REMEDIES.get(flag.kind) or flag.deprecated or f"leave it out for {flag.default}"
            quoted = go_quote(MASKED) if flag.secret else shown(text)
            raise _BadArgumentError(f'invalid argument {quoted} for "{name}" flag: {error} ({remedy})') from error
        if value is not IGNORED:
            self.given[flag.name] = value
        if flag.deprecated:
            self.deprecations[flag.name] = f"Flag --{flag.name} has been deprecated, {flag.deprecated}"

    def flags(self) -> Flags:
        """Return what was read."""
        given = dict(self.given)
        flags = Flags(deprecations=tuple(self.deprecations.values()), asks_help=bool(given.pop("help", False)))
        version = given.pop("version", "false")
        flags.version = "" if version == "false" else version
        for name, value in given.items():
            key = FLAGS[name].key
            if not key:
                flags.own[name] = value
            if name == "seccomp-default" and value:  # true overrides the file, false does not (config.md 1.1)
                key = "seccompDefault"
            if key:
                flags.fields[key] = value
                flags.places[key] = f"--{name}"
        flags.without_effect = tuple(f"--{name}" for name in flags.own if not FLAGS[name].acts)
        return flags


def _takes_no_word(flag: Flag) -> bool:
    return flag.kind in (FlagKind.BOOL, FlagKind.VERSION)


def _fitting(word: str) -> str:
    return word if word in ("true", "false", "raw") else "value"


def _unknown_remedy(name: str) -> str:
    if name in REMOVED_FLAGS:
        return REMOVED_FLAGS[name].shown
    if name in WINDOWS_FLAGS:
        return "it exists on Windows only; leave it out"
    close = closest(name, list(FLAGS))
    return f"did you mean --{close}?" if close else "`bulkhead config flags` lists those that exist"


def _check(argument: str, number: int) -> None:
    """Refuse what no message can carry, or no program is ever given. Raises _BadArgumentError."""
    if why := why_unusable(argument):
        raise _BadArgumentError(f"flags: argument {number} {why} (remove it)")
    if (size := len(argument.encode())) > _MAX_ARGUMENT_BYTES:
        raise _BadArgumentError(
            f"flags: argument {number} has {size} bytes, at most {_MAX_ARGUMENT_BYTES} can be (use a file)"
        )


def _cut(text: str) -> str:
    """Return a name for a message, on one line and not without end."""
    return shown(text)[1:-1]
