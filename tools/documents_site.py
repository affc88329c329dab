"""Gives the site of mkdocs (mkdocs.yml) the layout of the checkout, so that a link between documents works in both.
Anchors are those of GitHub."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

CHECKOUT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("*.md", "bus/*.md", "docs/**/*.md", "tests/README.md")
# Files that documents link to.
LINKED = ("LICENSE", "docs/images/*", "examples/**/*", "systemd/*", "tools/kubectl-bulkhead")
_ITEM = re.compile(r" {0,3}([-*]|\d+\.) ")
_NESTED = re.compile(r"^ {1,3}(?=([-*]|\d+\.) )")


def on_config(site: MkDocsConfig) -> None:
    """Set the rule for anchors, which YAML cannot name."""
    site.mdx_configs["toc"] = {"slugify": anchor, "permalink": True}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by all documents, each at its path in the checkout, and by what they link to."""
    theme = [file for file in files if not file.src_uri.endswith(".md") and file.abs_src_path is None]
    found = [path for pattern in (*DOCUMENTS, *LINKED) for path in sorted(CHECKOUT.glob(pattern)) if path.is_file()]
    names = [str(path.relative_to(CHECKOUT)) for path in found]
    return Files([*theme, *(File.generated(config, name, abs_src_path=str(CHECKOUT / name)) for name in names)])


def anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Separate lists, tables and blocks of code from the paragraph before them, and indent nested items by four spaces:
    mkdocs needs both, GitHub neither."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        before = lines[-1] if lines else ""
        fence = line.startswith("```")
        if not fenced and before.strip() and (fence or _begins(line, before)):
            lines.append("")
        fenced ^= fence
        lines.append(line if fenced else _NESTED.sub("    ", line))
    return "\n".join(lines)


def _begins(line: str, before: str) -> bool:
    if _ITEM.match(line):
        return not _ITEM.match(before) and not before.startswith(" ")
    return line.startswith("|") != before.startswith("|") and not _ITEM.match(before)
