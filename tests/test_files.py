"""Atomic writes: the old content or the new, never half, never rubbish beside it."""

import os

import pytest

from onepos.files import replacing, write_atomically


def test_replaces_whole(tmp_path):
    path = write_atomically(tmp_path / "page.html", "old")
    assert write_atomically(str(path), "new – ü") == path
    assert path.read_text(encoding="utf-8") == "new – ü"
    assert write_atomically(path, b"bytes").read_bytes() == b"bytes"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("stage", ["encode", "write", "sync"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, stage):
    path = write_atomically(tmp_path / "page.html", "old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    if stage == "sync":
        monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises((UnicodeEncodeError, RuntimeError, OSError)):  # noqa: PT012
        if stage == "write":
            with replacing(path) as handle:
                handle.write(b"half")
                raise RuntimeError
        write_atomically(path, "\ud800" if stage == "encode" else "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_link_at_a_temporary_name_is_not_followed(tmp_path, monkeypatch):
    target = write_atomically(tmp_path / "precious", "mine")
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)
    (tmp_path / f".page.html.{'0' * 16}.part").symlink_to(target)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "page.html", "new")
    assert target.read_text() == "mine"


def test_temporary_names_differ_in_one_process(tmp_path):
    names = []
    for _ in range(2):
        with replacing(tmp_path / "page.html") as handle:
            names.append(handle.name)
            handle.write(b"new")
    assert names[0] != names[1]
