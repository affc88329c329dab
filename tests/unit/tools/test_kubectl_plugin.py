"""The kubectl plugin requests the explanation from the node of the pod, and passes no other text into a URL."""

import os
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[3] / "tools" / "kubectl-bulkhead"
KUBECTL = """#!/bin/sh
case $1 in
config) echo shop ;;
get) if [ "$2" = pod ]; then echo "$NODE"; elif [ -n "$ERROR" ]; then echo "$ERROR" >&2; exit 1; else echo "$3"; fi ;;
esac
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with a kubectl that prints what it is asked for."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def plugin(path: str, *words: str, node: str = "n1", error: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path, "NODE": node, "ERROR": error}
    return subprocess.run([PLUGIN, *words], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("words", "requested"),
    [
        (("explain", "web"), "n1/proxy/bulkhead/explain/shop/web?output=text"),
        (("explain", "web", "-n", "other", "-o", "json"), "n1/proxy/bulkhead/explain/other/web?output=json"),
        (("explain", "a/web", "--since", "5m"), "n1/proxy/bulkhead/explain/a/web?output=text&since=5m"),
        (("explain", "web", "--node", "n2"), "n2/proxy/bulkhead/explain/shop/web?output=text"),
        (("explain", "--node", "n2"), "n2/proxy/bulkhead/explain?output=text"),
        (("explain", "--node", "n2", "node"), "n2/proxy/bulkhead/explain/node?output=text"),
        (("explain", "--node", "n2", "image", "a.b/c:1"), "n2/proxy/bulkhead/explain/image?output=text&name=a.b/c:1"),
        (("explain", "--node", "n2", "-n", "x", "node"), "n2/proxy/bulkhead/explain/x/node?output=text"),
    ],
)
def test_the_path_is_that_of_the_pod_on_its_node(path: str, words: tuple[str, ...], requested: str) -> None:
    answer = plugin(path, *words)
    assert (answer.stdout, answer.stderr, answer.returncode) == (f"/api/v1/nodes/{requested}\n", "", 0)


@pytest.mark.parametrize(
    "words",
    [(), ("other",), ("explain",), ("explain", "a", "b", "c"), ("explain", "web", "-x"), ("explain", "web?x=y"),
     ("explain", "web", "-n"), ("explain", "web", "--since", "5m&output=json"), ("explain", "--node", "n/../m?", "p")],
)  # fmt: skip
def test_bad_words_are_wrong_usage(path: str, words: tuple[str, ...]) -> None:
    answer = plugin(path, *words)
    assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1


def test_a_pod_without_a_node_is_one_line(path: str) -> None:
    answer = plugin(path, "explain", "web", node="")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("pod shop/web is bound to no node yet (")


@pytest.mark.parametrize(("reason", "lines"), [("NotFound", 2), ("Forbidden", 1)])
def test_only_an_answer_that_is_not_found_means_no_record(path: str, reason: str, lines: int) -> None:
    answer = plugin(path, "explain", "web", error=f"Error from server ({reason}): why")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.splitlines()[0] == f"Error from server ({reason}): why"
    assert len(answer.stderr.splitlines()) == lines
