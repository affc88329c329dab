"""The file-size report of `make check`: over 250 lines a file is named, over 400 it needs a reason on record."""

import subprocess
import sys
import tomllib
from pathlib import Path

NOTED = 250
REASON_NEEDED = 400


def python_files(checkout: Path) -> list[Path]:
    """The Python files git tracks or would track, relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=checkout,
        check=True,
        capture_output=True,
        text=True,
    )
    return [Path(line) for line in sorted(set(listed.stdout.splitlines())) if (checkout / line).exists()]


def report(sizes: dict[str, int], reasons: dict[str, str]) -> tuple[list[str], bool]:
    """Lines to print, and whether every file is small enough or explained."""
    lines, fine = [], True
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if size > REASON_NEEDED and name not in reasons:
            lines.append(f"{size:5} {name}: over {REASON_NEEDED} lines without a reason in [tool.bulkhead.large-files]")
            fine = False
        elif size > NOTED:
            lines.append(f"{size:5} {name}" + (f": {reasons[name]}" if name in reasons else ""))
    for name in sorted(reasons):
        if sizes.get(name, 0) <= REASON_NEEDED:
            lines.append(f"      {name}: listed in [tool.bulkhead.large-files] but not over {REASON_NEEDED} lines")
            fine = False
    return lines, fine


def main() -> None:
    """Print the report; exit 1 when a file is too long."""
    checkout = Path(__file__).resolve().parent.parent
    settings = tomllib.loads((checkout / "pyproject.toml").read_text())
    reasons = settings.get("tool", {}).get("bulkhead", {}).get("large-files", {})
    sizes = {str(path): len((checkout / path).read_text().splitlines()) for path in python_files(checkout)}
    lines, fine = report(sizes, reasons)
    print(f"{len(sizes)} Python files, {sum(sizes.values())} lines; over {NOTED} lines:")
    print("\n".join(lines) or "  none")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
