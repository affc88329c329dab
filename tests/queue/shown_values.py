"""A plug-in of pytest that lets a failed `assert` in what tests share show its values, as one in a test file does:
`pytest -p tests.queue.shown_values`, which pyproject.toml gives."""

import pytest

_ROOMS = ("chaos", "contracts", "e2e", "fakes", "machine", "process", "service", "simulation", "support", "unit")
pytest.register_assert_rewrite(*(f"tests.{room}" for room in _ROOMS))
