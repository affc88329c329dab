"""Everything is imported when a process starts, so that files replaced under a running agent mix no two versions."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What imports within functions, and why no running service does it.
EXCEPTIONS = {
    "services/bootstrap/adapters/certificate_forms.py": "cryptography: in a short-lived child that is executed",
    "services/bootstrap/adapters/exec_plugin.py": "kubernetes, 33 MiB: in a short-lived child that is executed",
    "services/bootstrap/adapters/resolved_credentials.py": "cryptography: in a short-lived child that is executed",
    "services/bootstrap/adapters/serving_pair.py": "cryptography: in a short-lived child that is executed",
    "services/cli/command.py": "the command `bulkhead`: one process per call",
    "services/cli/agent/explain.py": "asyncinotify and its event loop: only --follow needs it",
    "services/cli/agent/commands.py": "the command `bulkhead`: one process per call",
    "services/cli/agent/options.py": "the command `bulkhead`: one process per call",
    "services/cli/config/commands.py": "the command `bulkhead`: one process per call",
    "services/cli/pods/commands.py": "the command `bulkhead`: one process per call",
    "services/cli/preflight/command.py": "the command `bulkhead`: one process per call",
    "services/cli/takeover/commands.py": "the command `bulkhead`: one process per call",
    "services/cli/what_if/command.py": "the command `bulkhead`: one process per call",
    "services/cli/terminal/output.py": "YAML is loaded where it is asked for: a command answers in 0.3 s",
    "services/frame/tracing.py": "opentelemetry: at the start of a process whose configuration has tracing",
    "services/kubelet/command.py": "before this process is supervisord, and in the child that evaluates flags",
    "services/kubelet/evaluation_child.py": "the child that evaluates the command line",
    "services/volume/adapters/certificate_keys.py": "cryptography, 3 MiB: when a pod first requests a certificate",
}


def imports_within_functions(file: Path) -> list[int]:
    """Line numbers."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        inner.lineno
        for function in functions
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]


def test_no_service_imports_within_a_function() -> None:
    found = {
        str(file.relative_to(ROOT)): lines
        for room in ("services", "bus", "shared")
        for file in (ROOT / room).rglob("*.py")
        if (lines := imports_within_functions(file))
    }
    assert {file: lines for file, lines in found.items() if file not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - found.keys() == set(), "no exceptions any more"
