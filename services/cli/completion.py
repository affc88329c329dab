"""Makes the completion scripts that bash, zsh and fish load for `bulkhead` and `kubelet`.

The script of `bulkhead` runs the command for each completion; that of `kubelet` contains all flags."""

from collections.abc import Iterable

import click
from click.shell_completion import get_completion_class

from shared.config.fields import FlagKind
from shared.config.flag_table import FLAGS, Flag

_VARIABLE = "_BULKHEAD_COMPLETE"  # the variable with which the script runs `bulkhead`, as click names it
_WITHOUT_VALUE = (FlagKind.BOOL, FlagKind.VERSION)


def completion_script(shell: str, program: str, command: click.Command) -> str:
    """Return the script that completes `program`, bulkhead or kubelet, in `shell`, bash, zsh or fish; `command` is the
    click command of `bulkhead`."""
    if program == "kubelet":
        return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](FLAGS.values())
    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(command, {}, program, _VARIABLE).source().rstrip("\n")
    # Replaces click's own condition, with which the second completion of a session is empty, because zsh has loaded the
    # function by then.
    return text.replace("$zsh_eval_context[-1] == loadautofunc", f"$funcstack[1] == _{program}")


def _bash(flags: Iterable[Flag]) -> str:
    names = " ".join(f"--{flag.name}" for flag in flags)
    return f"""\
# bash completion of kubelet; load it with: source <(bulkhead completion bash kubelet)
_kubelet_completion() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "{names}" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -o filenames -F _kubelet_completion kubelet"""


def _zsh(flags: Iterable[Flag]) -> str:
    lines = []
    for flag in flags:
        text = flag.doc.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("'", "'\\''")
        value = "" if flag.kind in _WITHOUT_VALUE else "=:value:_files"
        lines.append(f"    '--{flag.name}{value[:1]}[{text}]{value[1:]}' \\")
    head = "#compdef kubelet\n# zsh completion of kubelet; put it into a directory of $fpath as _kubelet, or source it"
    body = ["_kubelet_completion() {", "_arguments -s \\", *lines, "    '*:file:_files'", "}"]
    called = '_kubelet_completion "$@"'
    return "\n".join(
        [
            head,
            *body,
            f"if [[ $funcstack[1] == _kubelet ]]; then {called}; else compdef _kubelet_completion kubelet; fi",
        ]
    )


def _fish(flags: Iterable[Flag]) -> str:
    lines = ["# fish completion of kubelet; put it into ~/.config/fish/completions/kubelet.fish"]
    for flag in flags:
        text = flag.doc.replace("\\", "\\\\").replace("'", "\\'")
        value = "" if flag.kind in _WITHOUT_VALUE else " -r"
        letter = f" -s {flag.shorthand}" if flag.shorthand else ""
        lines.append(f"complete -c kubelet -l {flag.name}{letter}{value} -d '{text}'")
    return "\n".join(lines)
