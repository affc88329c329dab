"""Records of the networks of sandboxes that cannot be written."""

from pathlib import Path

import pytest

from services.dockershim.adapters.network import Networks
from services.dockershim.core.cni_requests import Attachment
from services.dockershim.core.errors import CallError

CONFIGURATION = '{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge"}]}'


async def test_a_record_that_cannot_be_written_is_an_error_for_the_operator_before_any_plugin_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "10-n.conflist").write_text(CONFIGURATION)
    ran = tmp_path / "ran"
    (tmp_path / "bridge").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "bridge").chmod(0o755)
    records = tmp_path / "networks"
    networks = Networks(records, (str(tmp_path),), tmp_path)
    records.rmdir()  # another reason than a full disk, and the same refusal
    attachment = Attachment(sandbox_id="box", name="web", namespace="default", uid="u-1", capabilities={})
    with pytest.raises(CallError, match="cannot be written: No such file or directory; make room on") as refused:
        await networks.set_up(attachment, 1)
    assert str(records / "box.json") in str(refused.value)
    assert not ran.exists() and networks.sandboxes() == frozenset()
