"""Completion scripts are accepted by their shells and complete commands, options and flags."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from services.cli.command import main
from services.cli.completion import completion_script
from shared.config.flag_table import FLAGS

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("program", ["bulkhead", "kubelet"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_accepts_its_script(shell: str, program: str) -> None:
    text = completion_script(shell, program, main)
    assert program in text
    if shutil.which(shell):  # bash is everywhere
        checked = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def completed(shell_script: str, function: str, *words: str) -> list[str]:
    """What bash offers for the last of `words`."""
    lines = [shell_script, f"COMP_WORDS=({' '.join(words)})", f"COMP_CWORD={len(words) - 1}", function]
    program = "\n".join([*lines, 'printf "%s\\n" "${COMPREPLY[@]}"'])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "-c", program], capture_output=True, check=True, text=True, env={**os.environ, "PATH": path}
    )
    return answer.stdout.split()


def test_bash_completes_the_flags_of_kubelet() -> None:
    text = completion_script("bash", "kubelet", main)
    assert completed(text, "_kubelet_completion", "kubelet", "--image-credential-provider-c") == [
        "--image-credential-provider-config"
    ]
    assert len(completed(text, "_kubelet_completion", "kubelet", "--")) == len(FLAGS)


def test_bash_completes_commands_options_and_the_flags_of_a_configuration() -> None:
    text = completion_script("bash", "bulkhead", main)
    assert completed(text, "_bulkhead_completion bulkhead", "bulkhead", "desc") == ["describe"]
    assert "--wait-ready" in completed(text, "_bulkhead_completion bulkhead", "bulkhead", "status", "--")
    assert "--node-ip" in completed(text, "_bulkhead_completion bulkhead", "bulkhead", "config", "check", "--node")


def test_every_flag_is_in_every_script() -> None:
    for shell in SHELLS:
        text = completion_script(shell, "kubelet", main)
        assert not [name for name in FLAGS if f"--{name}" not in text and f"-l {name} " not in text]


def commands(group: click.Group, *words: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command below the group, with its words."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        inner = commands(command, *words, name) if isinstance(command, click.Group) else [((*words, name), command)]
        found += inner
    return found


def test_the_help_of_every_command_has_its_exit_codes(subtests: pytest.Subtests) -> None:
    for words, command in commands(main):
        with subtests.test(" ".join(words) if isinstance(words, tuple) else ""):
            assert "Exit codes: " in (command.help or "")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("pods apply -f", "file"),
        ("pods delete --filename", "file"),
        ("what-if", "file"),
        ("config check --config", "file"),
        ("config diff", "file"),
        ("support-bundle --file", "file"),
        ("preflight --pods", "file"),
        ("status --run-dir", "dir"),
        ("explain --root-dir", "dir"),
    ],
)
def test_a_shell_completes_the_name_of_a_file_or_directory(words: str, kind: str) -> None:
    [found] = ShellComplete(main, {}, "bulkhead", "_X").get_completions(words.split(), "si")
    assert (found.type, found.value) == (kind, "si")
