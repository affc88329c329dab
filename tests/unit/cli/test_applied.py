"""`bulkhead pods apply` without an agent: what is wrong with a file, and where an agent would be."""

from pathlib import Path

import pytest

from services.cli.pods.applied import apply_files, delete_applied, list_applied
from shared.agent.apply_api import SOCKET


def test_without_an_agent_the_command_names_the_socket(tmp_path: Path) -> None:
    err = list[str]()
    assert list_applied(str(tmp_path), "", "text", err.append, err.append) == 1
    assert err[0].startswith(
        f"{tmp_path}/{SOCKET}: no agent takes manifests: No such file or directory (start the agent"
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "holds no manifest (name another file)"),
        ("{", "not YAML: "),
        ("[1]", "holds a document that is no object (correct it)"),
        ("kind: List\nitems: [1]", "holds a document that is no object (correct it)"),
    ],
)
def test_a_bad_file_is_one_line_of_the_command(tmp_path: Path, content: str, line: str) -> None:
    err = list[str]()
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    assert apply_files(str(tmp_path), [str(file)], "", err.append, err.append) == 1
    assert err[0].startswith(f"{file}: {line}")


@pytest.mark.parametrize(("names", "namespace"), [(["secret/a\udcff"], ""), (["web"], "\udcff")])
def test_a_name_that_is_not_utf8_is_one_line(names: list[str], namespace: str, tmp_path: Path) -> None:
    err = list[str]()
    assert delete_applied(str(tmp_path), [], names, namespace, err.append, err.append) == 1
    assert [line.partition(": ")[2] for line in err] == [
        "is not UTF-8 text (bulkhead pods list --applied shows the names)"
    ]
