"""A plug-in of pytest that keeps what is compiled, also with PYTHONDONTWRITEBYTECODE: `pytest -p tests.queue.compiled`.

A run has a hundred processes. Each would compile what it imports again, and rewrite the assertions of 85 modules of
Hypothesis. Only this process writes: what a test starts keeps its environment.
"""

import sys

sys.dont_write_bytecode = False
