"""The program `containerd`, which bootstrap has supervisord run."""

import pytest

from services.bootstrap.controllers import program_start


async def test_supervisord_is_asked_for_containerd_until_it_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, troubles = [False, False, True], list[str | None]()
    monkeypatch.setattr(program_start, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(program_start, "start_program", lambda *_: answers.pop(0))
    await program_start.ensure_program("containerd", "services.bootstrap.containerd", troubles.append)
    assert not answers
    assert [trouble is None for trouble in troubles] == [False, False, True]
