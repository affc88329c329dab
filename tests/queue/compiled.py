"""A plug-in of pytest that keeps what is compiled, also with PYTHONDONTWRITEBYTECODE: `pytest -p tests.queue.compiled`.

A run has a hundred processes. Each would compile what it imports again, and rewrite the assertions of 85 modules of
Hypothesis. The methods of dataclasses are kept as well. Only this process writes: what a test starts keeps its
environment.
"""

import sys

from tests.queue.dataclass_code import keep_codes

sys.dont_write_bytecode = False
keep_codes()
