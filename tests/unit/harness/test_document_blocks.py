"""Which blocks of a document are executed, and when an output is the one that the document shows."""

from pathlib import Path

import pytest

from tests.support.source.document_blocks import Block, blocks, fits

TEXT = """\
Text.

<!-- run: terminal -->
```sh
make run
```
Not executed:
```sh
rm -rf /
```
<!-- run -->
```sh
ls
echo b
```
<!-- prints -->
```
a
b
```
"""


def test_only_marked_blocks_are_executed_with_their_output(tmp_path: Path) -> None:
    (tmp_path / "d.md").write_text(TEXT)
    assert blocks(tmp_path / "d.md") == [Block("make run\n", "terminal"), Block("ls\necho b\n", "", "a\nb\n")]


def test_a_comment_without_a_block_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.md").write_text("<!-- run -->\nText\n")
    with pytest.raises(AssertionError, match="a comment without a block"):
        blocks(tmp_path / "d.md")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\nb\n", "a\nb\n", True),
        ("a\n…\nb\n", "a\nx\ny\nb\n", True),
        ("a\n…\nb\n", "a\nx\n", False),
        ("NAME  READY\nweb-… 1/1\n", "NAME       READY\nweb-node   1/1\n", True),
        ("web-… 1/1\n", "web-node 0/1\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_fits_by_lines_and_words(expected: str, printed: str, same: bool) -> None:
    assert fits(expected, printed) is same
