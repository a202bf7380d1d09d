from pathlib import Path

import pytest

from lagoon.homes import FolderTaken, make_short_folder, short_folder


def test_a_short_folder_is_made_once_and_found_again(tmp_path: Path) -> None:
    folder = make_short_folder(tmp_path)
    assert folder == short_folder(tmp_path) == make_short_folder(tmp_path)
    assert folder.is_dir()
    folder.rmdir()


def test_a_link_in_place_of_the_short_folder_is_refused(tmp_path: Path) -> None:
    folder = short_folder(tmp_path)
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(FolderTaken, match="belongs to somebody else"):
            make_short_folder(tmp_path)
    finally:
        folder.unlink()
