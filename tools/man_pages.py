"""Writes the man pages into a directory, from the commands' own help and the table of flags: `python -m tools.man_pages
OUT`."""

import argparse
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from services.cli.command import main as bulkhead
from shared.config.fields import FlagKind
from shared.config.flag_table import FLAGS, Flag
from shared.config.flag_text import value_text
from shared.config.help_text import gate_lines
from shared.version import KUBERNETES_VERSION
from tools.home import CHECKOUT

_EXIT_CODES = "Exit codes:"
_ENVIRONMENT = (
    ("BULKHEAD_RUN_DIR", "Run directory of the agent, where --run-dir is not given."),
    ("BULKHEAD_HOME", "Directory that holds all files of an agent; its run directory is run below it."),
    ("KUBELET_ARGS", "Flags of the agent, instead of those in the args file."),
)
_COLOUR = ("NO_COLOR", "Any text: no colours on a terminal.")
_OPEN_ACCESS = (
    "BULKHEAD_REFUSE_OPEN_ACCESS",
    "1: a configuration in which every host may run commands in every container is refused. bulkhead.service sets it.",
)
_FILES = (
    ("/etc/bulkhead/kubelet.args", "Flags of the agent, where the command line and KUBELET_ARGS give none."),
    ("/run/bulkhead", "Run directory: sockets, locks and the configuration in force."),
    ("/var/lib/kubelet", "Root directory: records, volumes and certificates. --root-dir changes it."),
    ("/var/lib/bulkhead/kubelet", "The root directory, by the flags that the Debian package installs."),
    ("/var/log/bulkhead", "One log for each service."),
    ("/var/log/pods", "The logs of containers. podLogsDir changes it."),
    ("/var/log/bulkhead/pods", "The logs of containers, by the configuration that the Debian package installs."),
)
_SIGNALS = (
    ("SIGTERM, SIGINT", "End the services and exit with 0. Containers keep running. A second one kills the services."),
    ("SIGHUP", "Read the configuration again and restart all services. Containers keep running."),
)
_KUBELET_EXIT_CODES = (
    ("0", "Ended by a signal, or --help or --version was printed. With --runonce: every pod succeeded or is Ready."),
    ("1", "The configuration is refused, or a second signal came. With --runonce: a pod failed."),
    ("2", "A feature gate is refused."),
)
_KUBELET = f"""\
bulkhead-kubelet is a Kubernetes node agent. Its executable has the name kubelet. It takes the flags and the
configuration file of the kubelet of Kubernetes {KUBERNETES_VERSION}. It starts seven services and restarts each that
ends.

Without --kubeconfig it runs static pods alone. With it, it makes this machine a node of a cluster and runs the pods
that are bound to the node."""


def pages() -> dict[str, str]:
    """Return the pages: file name -> text in the man macros of roff."""
    context = click.Context(bulkhead, info_name="bulkhead")
    names = list(_commands(bulkhead, "bulkhead"))
    found = {f"{name.replace(' ', '-')}.1": command_page(name, command, names) for name, command in names}
    below = names[1:]  # the names without the first one, which is the page itself
    variables = _entries("ENVIRONMENT", (*_ENVIRONMENT, _COLOUR))
    found["bulkhead.1"] += variables + _entries("FILES", _FILES) + _see_also(below)
    context.close()
    return {**found, "kubectl-bulkhead.1": _plugin_page(), "bulkhead-kubelet.8": _kubelet_page()}


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child, below in sorted(command.commands.items()):
            if not below.hidden:
                yield from _commands(below, f"{name} {child}")


def command_page(name: str, command: click.Command, names: list[tuple[str, click.Command]]) -> str:
    context = click.Context(command, info_name=name)
    context.help_option_names = ["-h", "--help"]
    usage = " ".join(command.collect_usage_pieces(context))
    paragraphs = [part.strip() for part in (command.help or "").split("\n\n")]
    codes = [text for text in paragraphs if _EXIT_CODES in text]
    parts = [
        _title(name.replace(" ", "-"), 1),
        _name(name.replace(" ", "-"), _summary(command)),
        f".SH SYNOPSIS\n.B {_roff(name)}\n{_roff(usage)}\n",
        ".SH DESCRIPTION\n" + "\n.PP\n".join(_text(text) for text in paragraphs if text not in codes) + "\n",
    ]
    if isinstance(command, click.Group):
        below = ((child, _summary(command.commands[child])) for child in sorted(command.commands))
        parts.append(_entries("COMMANDS", below))
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    parts.append(_entries("OPTIONS", (record for record in records if record and record[1])))
    if codes:
        parts.append(_entries("EXIT STATUS", _exit_codes(codes[0])))
    if name != "bulkhead":
        above = name.rpartition(" ")[0]
        parts.append(_see_also([one for one in names if one[0] == above or one[0].rpartition(" ")[0] == name]))
    return "".join(parts)


def _exit_codes(paragraph: str) -> list[tuple[str, str]]:
    """Return the pairs of `0 = printed, 2 = wrong usage.`; a text before the first code is a pair of its own."""
    text = " ".join(paragraph.replace("\b", "").partition(_EXIT_CODES)[2].split()).rstrip(".")
    pieces = [piece for piece in re.split(r"[,;] (?=\d+ = )|; (?=1 = )", text) if piece]
    return [
        (left, right) if sign else ("other", left) for left, sign, right in (one.partition(" = ") for one in pieces)
    ]


def _plugin_page() -> str:
    """Return the page of the kubectl plugin from its help: usage, description and exit codes, in this order."""
    command = ["sh", str(CHECKOUT / "tools/kubectl-bulkhead"), "--help"]
    usage, description, codes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n\n")
    return "".join(
        (
            _title("kubectl-bulkhead", 1),
            _name("kubectl-bulkhead", "show what happened to a pod on its node, without a login there"),
            ".SH SYNOPSIS\n" + _text("\b\n" + usage.partition("\n")[2]) + "\n",
            f".SH DESCRIPTION\n{_text(description)}\n",
            _entries("EXIT STATUS", _exit_codes(codes)),
            _see_also([("bulkhead explain", bulkhead)]),
        )
    )


def _kubelet_page() -> str:
    flags = sorted(FLAGS.values(), key=lambda flag: flag.name)
    return "".join(
        (
            _title("bulkhead-kubelet", 8),
            _name("bulkhead-kubelet", "a Kubernetes node agent made of separate, supervised processes"),
            ".SH SYNOPSIS\n.B kubelet\n[flags]\n",
            ".SH DESCRIPTION\n" + "\n.PP\n".join(_text(part) for part in _KUBELET.split("\n\n")) + "\n",
            _entries("OPTIONS", (_flag(flag) for flag in flags if not flag.deprecated)),
            _entries("DEPRECATED OPTIONS", (_flag(flag) for flag in flags if flag.deprecated)),
            _entries("FEATURE GATES", (tuple(line.split(" ", 1)) for line in gate_lines())),
            _entries("SIGNALS", _SIGNALS),
            _entries("EXIT STATUS", _KUBELET_EXIT_CODES),
            _entries("ENVIRONMENT", (*_ENVIRONMENT, _OPEN_ACCESS)),
            _entries("FILES", _FILES),
            _see_also([("bulkhead", bulkhead), ("bulkhead config check", bulkhead)], kubelet=False),
        )
    )


def _flag(flag: Flag) -> tuple[str, str]:
    letter = f"-{flag.shorthand}, " if flag.shorthand else ""
    word = "" if flag.kind is FlagKind.BOOL else f" {flag.kind.word}"
    default = value_text(flag.kind, flag.default)
    shown = f" Default: {default}." if default not in ("", "false") else ""
    old = f" Deprecated: {flag.deprecated}." if flag.deprecated else ""
    idle = "" if flag.acts else " Without effect."
    return f"{letter}--{flag.name}{word}", f"{flag.doc}.{shown}{old}{idle}"


def _title(name: str, section: int) -> str:
    # The page has no date, so that the same tree gives the same bytes.
    return f'.TH "{name.upper()}" {section} "" "Bulkhead" "Bulkhead"\n.nh\n.ad l\n'


def _summary(command: click.Command) -> str:
    """Return the command's line in a list of commands."""
    return command.get_short_help_str(200).removeprefix("Bulkhead: ").rstrip(".")


def _name(name: str, summary: str) -> str:
    """Return the line that apropos reads."""
    return f".SH NAME\n{_roff(name)} \\- {_roff(summary)}\n"


def _entries(title: str, entries: Iterable[tuple[str, ...]]) -> str:
    lines = "".join(f".TP\n.B {_roff(head)}\n{_text(text)}\n" for head, text in entries)
    return f".SH {title}\n{lines}" if lines else ""


def _see_also(names: Iterable[tuple[str, click.Command]], *, kubelet: bool = True) -> str:
    found = [name.replace(" ", "-") for name, _ in names]
    references = [f".BR {_roff(name)} (1)" for name in found] + [".BR bulkhead\\-kubelet (8)"] * kubelet
    return ".SH SEE ALSO\n" + ",\n".join(references) + "\n"


def _text(text: str) -> str:
    """Return a paragraph for roff. Words in backticks become bold; a paragraph whose lines click keeps has them here,
    too."""
    kept = text.startswith("\b")
    lines = [line.strip() for line in text.replace("\b", "").strip().splitlines()]
    body = "\n.br\n".join(_roff(line) for line in lines) if kept else _roff(" ".join(lines))
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", body)


def _roff(text: str) -> str:
    """Return the text escaped, so that roff shows each of its characters."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    safe = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in safe)
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def write_pages(directory: Path) -> list[Path]:
    """Write every page, and return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in pages().items():
        files.append(directory / name)
        files[-1].write_text(text, encoding="utf-8")
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.man_pages", description="Writes the man pages.")
    parser.add_argument("out", type=Path, metavar="OUT", help="directory for the pages")
    given = parser.parse_args()
    print(f"wrote {len(write_pages(given.out))} pages to {given.out}")
