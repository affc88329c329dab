"""The messages and commands that documents name are those of the code."""

import functools
import re

import click
import pytest

from services.cli.command import main
from tests.architecture.checkout import text_of, tracked_files
from tests.support.source.message_texts import unknown_words

DOCUMENTS = [name for name in tracked_files() if re.fullmatch(r"README\.md|docs/[\w-]+\.md", name)]
# Printed by the control plane, a registry, the kernel or the runtime.
OF_OTHERS = {
    "Kubelet stopped posting node status.",
    "ErrImagePull (failed to pull and unpack image …",
    "… no such host",
    "… pull access denied",
    "… no space left on device",
    'failed to get network "…" cached result: … unexpected end of JSON input',
    "containerd-shim-runc-v2",
    "remote error: tls: unknown certificate authority",
}

# Names of nodes, namespaces, pods, images, files and keys in the output that documents show.
OF_EXAMPLES = {
    "attempt", "config", "default", "etcd", "example", "here", "kubeadm", "kubernetes", "logging", "nginx", "podsync",
    "registry", "service", "shop", "system",
}  # fmt: skip


def messages() -> list[str]:
    """The first column of each table of the page."""
    rows = [line for line in text_of("docs/troubleshooting.md").splitlines() if line.startswith("| ")]
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_every_message_of_the_page_about_symptoms_is_one_of_the_code() -> None:
    found = messages()
    assert len(found) > 60 and set(found) >= OF_OTHERS
    wrong = {message: words for message in found if message not in OF_OTHERS and (words := unknown_words(message))}
    assert not wrong


def test_another_wording_is_noticed() -> None:
    assert unknown_words('Back-off pulling image "…"') == []
    assert unknown_words('Back-off fetching image "…"') != []


def shown_output(document: str) -> list[str]:
    """The lines of the document's blocks without a language, which show what a command prints."""
    lines: list[str] = []
    language: str | None = None
    for line in text_of(document).splitlines():
        if line.startswith("```"):
            language = line[3:] if language is None else None
        elif language == "":
            lines.append(line)
    return lines


@pytest.mark.parametrize("document", ["docs/commands.md", "docs/operations.md"])
def test_the_output_that_a_page_shows_has_the_words_of_the_code(document: str) -> None:
    lines = shown_output(document)
    assert lines
    wrong = {line: words for line in lines if (words := set(unknown_words(line)) - OF_EXAMPLES)}
    assert not wrong


@functools.cache
def commands() -> list[tuple[str, str]]:
    """Document and command line, of each that begins with `bulkhead` in a block or a span of code."""
    found = []
    for name in DOCUMENTS:
        blocks = re.findall(r"^```sh\n(.*?)^```$", text_of(name), re.MULTILINE | re.DOTALL)
        lines = [line.strip() for block in blocks for line in block.splitlines()]
        spans = re.findall(r"`(bulkhead [^`\n]+)`", text_of(name))
        found += [(name, line) for line in (*lines, *spans) if line.startswith("bulkhead ")]
    return found


def test_every_command_of_a_document_exists_with_its_options(subtests: pytest.Subtests) -> None:
    for name in DOCUMENTS:
        with subtests.test(name):
            wrong = []
            for document, line in commands():
                words = re.sub(r"\s+#.*|[|;>&].*|\.$", "", line).split()[1:]
                if document == name and not exists(main, words):
                    wrong.append(line)
            assert not wrong


def exists(command: click.Command, words: list[str]) -> bool:
    """Whether the words name a command below this one, whose options they are."""
    if isinstance(command, click.Group) and words and words[0] in command.commands:
        return exists(command.commands[words[0]], words[1:])
    if isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and command is main:
        return words[0] in ("and", "or")
    options = {option for parameter in command.params for option in parameter.opts} | {"-h", "--help", "--version"}
    flags = isinstance(command, click.Group) or command.name in ("check", "show", "diff")
    given = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    return flags or all(word in options for word in given if re.match(r"--[a-z]", word))
