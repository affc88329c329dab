"""The help lists every command with a line that fits, and options are the same everywhere."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from services.cli.command import MAX_SUMMARY_CHARACTERS, SECTIONS, main


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command below the group, also groups."""
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


COMMANDS = dict(commands(main))


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(main.commands)


@pytest.mark.parametrize("group", [(), *(words for words, one in COMMANDS.items() if isinstance(one, click.Group))])
def test_the_line_of_a_command_in_a_list_is_complete_in_a_terminal_of_80_columns(group: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, [*group, "-h"], terminal_width=80).stdout
    below = {words[-1]: one for words, one in COMMANDS.items() if words[:-1] == group}
    for name, command in below.items():
        line = command.get_short_help_str(MAX_SUMMARY_CHARACTERS)
        assert line.endswith(".") and not line.endswith("..."), f"{name}: {line}"
        assert line in shown.partition("Options:")[2], f"{name}: its line is cut or wrapped"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_output_option_offers_json_and_yaml_and_begins_with_text(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    forms = [one for one in command.params if "-o" in one.opts]
    for option in forms:
        assert isinstance(option.type, click.Choice)
        assert option.type.choices[0] == "text" and {"json", "yaml"} <= set(option.type.choices)
    if command.context_settings.get("ignore_unknown_options"):  # kubelet flags: the option is read by hand
        assert "[-o text|json|yaml]" in " ".join((command.help or "").split())


def test_a_choice_is_not_broken_over_two_lines_of_the_usage() -> None:
    usage = CliRunner().invoke(main, ["restart", "-h"], terminal_width=80).stdout
    assert usage.split("\n")[0].endswith(" restart [OPTIONS] SERVICE...")
    assert CliRunner().invoke(main, ["restart", "kubelet"]).exit_code == 2


@pytest.mark.parametrize("words", [("check",), ("show",), ("diff", "old.yaml", "new.yaml")], ids=" ".join)
def test_an_unknown_form_of_a_configuration_is_wrong_usage_not_a_difference(words: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(main, ["config", *words, "-o", "xml"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == '--output: is "xml", must be one of text, json, yaml (of this command)\n'


def test_a_pod_that_is_required_and_not_named_is_wrong_usage() -> None:
    answer = CliRunner().invoke(main, ["describe"])
    assert answer.exit_code == 2
    assert "Missing argument 'POD'" in answer.stderr


@pytest.mark.parametrize("words", [("check",), ("show",), ("diff",)], ids=" ".join)
def test_the_help_of_a_configuration_command_lists_its_options(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, ["config", *words, "-h"], terminal_width=80).stdout.partition("Options:")[2]
    assert [name for name in ("-o, --output", "-h, --help", "--FLAG") if name not in shown] == []


@pytest.mark.parametrize("words", [(), ("status",), ("pods", "apply"), ("config", "check")], ids=" ".join)
def test_help_shows_what_the_option_shows(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, ["help", *words])
    assert (shown.exit_code, shown.stdout) == (0, CliRunner().invoke(main, [*words, "-h"]).stdout)
    assert CliRunner().invoke(main, ["help", *words, "nothing"]).exit_code == 2
