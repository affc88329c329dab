"""The man pages show every command, option, flag and exit code, and no text of them is a request to roff."""

import re

import click
import pytest

from services.cli.command import main
from shared.config.flag_table import FLAGS
from tools import man_pages

PAGES = man_pages.pages()


def commands(command: click.Command, name: str = "bulkhead") -> list[tuple[str, click.Command]]:
    below = command.commands if isinstance(command, click.Group) else {}
    return [(name, command), *(found for child in below for found in commands(below[child], f"{name}-{child}"))]


def plain(page: str) -> str:
    """The text of a page without the fonts and escapes of roff."""
    return re.sub(r"\\f[BR]|\\&", "", PAGES[page]).replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\")


def test_a_page_has_every_option_and_exit_code_of_its_command(subtests: pytest.Subtests) -> None:
    for name, command in commands(main):
        with subtests.test(name):
            page = plain(f"{name}.1")
            for parameter in command.params:
                assert isinstance(parameter, click.Argument) or all(option in page for option in parameter.opts)
            in_help = set(re.findall(r"\b(\d+) = ", (command.help or "").partition("Exit codes:")[2]))
            shown = page.partition(".SH EXIT STATUS")[2].partition(".SH")[0]
            assert set(re.findall(r"^\.B (\d+)$", shown, re.MULTILINE)) == in_help
            assert in_help or isinstance(command, click.Group), f"the help of {name} names no exit codes"


def test_there_is_one_page_for_each_command_one_for_the_plugin_and_one_for_the_flags() -> None:
    of_commands = {f"{name}.1" for name, _ in commands(main)}
    assert set(PAGES) == {*of_commands, "kubectl-bulkhead.1", "bulkhead-kubelet.8"}


def test_the_page_of_the_plugin_has_its_usage_and_exit_codes() -> None:
    page = plain("kubectl-bulkhead.1")
    assert "\nkubectl bulkhead explain POD [-n NAMESPACE]" in page
    assert re.findall(r"^\.B (\d)$", page, re.MULTILINE) == ["0", "1", "2"]


def test_the_page_of_the_executable_has_every_flag() -> None:
    page = plain("bulkhead-kubelet.8")
    assert not [name for name in FLAGS if not re.search(rf"^\.B (-\w, )?--{name}( |$)", page, re.MULTILINE)]


def test_every_page_that_a_page_refers_to_exists() -> None:
    for name in PAGES:
        for page, section in re.findall(r"^\.BR (\S+) \((\d)\)", plain(name), re.MULTILINE):
            assert f"{page}.{section}" in PAGES, name


def test_a_text_that_looks_like_a_request_or_an_escape_is_shown_as_it_is() -> None:
    @click.command(help=".de x `bold` \\fI \"quoted\" 'é'\n\n'br\n\n\b\nExit codes: 0 = \\n, 3 = .so /etc/passwd")
    def odd() -> None: ...

    page = man_pages.command_page("odd", odd, [])
    assert "\\&.de x \\fBbold\\fR \\efI \\(dqquoted\\(dq '\\[u00E9]'" in page
    assert "\\&'br" in page and "\n.B 3\n\\&.so /etc/passwd\n" in page


def test_the_summary_is_the_line_of_the_command_in_the_help() -> None:
    def name_of(page: str) -> str:
        return plain(page).partition(".SH NAME\n")[2].partition("\n")[0]

    assert name_of("bulkhead-config-check.1") == "bulkhead-config-check - Check a configuration"
    assert name_of("bulkhead-completion.1").endswith("shell completion of bulkhead or kubelet")
    assert name_of("bulkhead-give-back.1").endswith("the node's own kubelet again, after a takeover")
    assert all(not name_of(page).endswith((",", ":")) for page in PAGES)


def test_a_second_run_writes_the_same_bytes() -> None:
    assert man_pages.pages() == PAGES
