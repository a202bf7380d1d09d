import stat
from pathlib import Path
from uuid import uuid4

import pytest

from lagoon.homes import short_folder
from workers.engine_settings import environment


def test_the_engines_sockets_are_in_the_homes_short_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ("long" * 40)
    monkeypatch.setenv("LAGOON_HOME", str(home))
    folder = Path(environment(threads=1)["VLLM_RPC_BASE_PATH"])
    assert folder == short_folder(home)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o066 == 0  # nobody else lists or writes it
    assert len(str(folder / str(uuid4()))) < 100
    folder.rmdir()
