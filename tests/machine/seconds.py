"""`python -m tests.machine.seconds FILE.xml ...` prints a table of Markdown: each check in a machine of the tests
and its seconds, by the junit files of runs.

These are in build/tests after `make test` or `make machine`, and in build/night. Of a check in several files the last
one counts. What is not in tests/machine is left out, and so are checks that were skipped."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

_LANE = "tests.machine."
_INSIDE = "seconds of "  # begins the name of what a check has recorded of a test that ran in the machine


def read_seconds(files: list[Path]) -> dict[tuple[str, str], float]:
    """Return the seconds of each check that passed or failed, by its file and name. They are those that the check has
    recorded itself, else those of its test with its fixtures. Each test that has run in the machine is a check of its
    own, and the check that has run them has the seconds that remain."""
    found = {}
    for file in files:
        for case in ET.parse(file).iter("testcase"):
            module = case.get("classname", "")
            if not module.startswith(_LANE) or case.find("skipped") is not None:
                continue
            recorded = case.find("properties/property[@name='seconds']")
            seconds = float((case if recorded is None else recorded).get("time" if recorded is None else "value", "0"))
            check, parameters = module.removeprefix(_LANE), case.get("name", "").partition("[")[2].rstrip("]")
            for one in case.iterfind("properties/property"):
                if (test := one.get("name", "")).startswith(_INSIDE):
                    inside = float(one.get("value", "0"))
                    found[check, f"{_sentence(test.removeprefix(_INSIDE))}, in {parameters}"] = inside
                    seconds -= inside
            found[check, _sentence(case.get("name", ""))] = seconds
    return found


def render(found: dict[tuple[str, str], float]) -> str:
    """Return the table, in the order of the run. A row for each file has the sum of its checks, and the last
    row the sum of all."""
    lines = ["| check | seconds |", "|---|---|"]
    for module in dict.fromkeys(module for module, _ in found):
        checks = {name: seconds for (of, name), seconds in found.items() if of == module}
        lines.append(f"| **`{module}.py`** | **{sum(checks.values()):.0f}** |")
        lines += [f"| {name} | {seconds:.1f} |" for name, seconds in checks.items()]
    lines.append(f"| **all** | **{sum(found.values()):.0f}** |")
    return "\n".join(lines)


def _sentence(name: str) -> str:
    test, bracket, parameters = name.partition("[")
    test = test.removeprefix("test_").replace("_", " ")
    return f"{test}: {parameters.rstrip(']')}" if bracket else test


if __name__ == "__main__":
    print(render(read_seconds([Path(path) for path in sys.argv[1:]])))
