"""Which values the FLAG lines show (config.md 5.13)."""

from pathlib import Path

import pytest

from services.kubelet.evaluation_child import merged_values
from shared.config.evaluation import evaluate
from shared.config.flag_lines import flag_lines

DOCUMENT = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.mark.parametrize(("with_file", "shown"), [(False, "4"), (True, "110")])
def test_drop_ins_are_shown_where_there_is_no_file(tmp_path: Path, with_file: bool, shown: str) -> None:
    (tmp_path / "drop-ins").mkdir()
    (tmp_path / "drop-ins/10.conf").write_text(f"{DOCUMENT}maxPods: 4\n")
    alone = "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
    (tmp_path / "kubelet.yaml").write_text(DOCUMENT + alone)
    file = [f"--config={tmp_path}/kubelet.yaml"] if with_file else []
    resolved = evaluate([f"--config-dir={tmp_path}/drop-ins", *file])
    assert f'FLAG: --max-pods="{shown}"' in flag_lines(resolved.flags, merged_values(resolved))
