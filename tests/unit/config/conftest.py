"""No test here depends on the variables of the process that runs it."""

import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BULKHEAD_HOME", "BULKHEAD_RUN_DIR", "KUBELET_ARGS"):
        monkeypatch.delenv(name, raising=False)
