"""Atomic writes: the old content or the new, never half, never rubbish beside it."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from onepos import files
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


def test_a_rewritten_file_keeps_its_mode_and_a_new_one_gets_the_users(tmp_path):
    before = os.umask(0o027)
    try:
        new = write_atomically(tmp_path / "new", "x")
        secret = write_atomically(tmp_path / "secret", "old")
        secret.chmod(0o600)
        write_atomically(secret, "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_link_is_written_through(tmp_path):
    real = write_atomically(tmp_path / "real.csv", "old")
    (tmp_path / "deep").mkdir()
    link = tmp_path / "deep" / "link.csv"
    link.symlink_to(real)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match=r"pipe.csv must be a plain file, or not exist yet; it is a pipe"):
        write_atomically(tmp_path / "pipe.csv", "new")


@pytest.mark.parametrize(("number", "advice"), [(errno.ENOSPC, "Free some room"), (errno.EIO, "Check the disk")])
def test_what_the_system_refuses_is_one_sentence_with_the_file_and_advice(tmp_path, monkeypatch, number, advice):
    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=rf"page.html could not be written; .*\. {advice}.* is unchanged\.$") as caught:
        write_atomically(tmp_path / "page.html", "new")
    assert caught.value.errno == number
    assert "\n" not in str(caught.value)


def test_what_killed_writers_left_is_removed_and_not_what_living_ones_write(tmp_path):
    """A process writes and is killed; the next writer in that folder removes its temporary file."""
    code = (
        "import os, sys\nfrom onepos.files import replacing\n"
        "with replacing(sys.argv[1]) as handle:\n"
        "    handle.write(b'half')\n    handle.flush()\n    print('there', flush=True)\n"
        "    if sys.argv[2] == 'die': os.kill(os.getpid(), 9)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "page.html")]
    subprocess.run([*command, "die"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert len(list(tmp_path.glob(".*.part"))) == 1
    alive = subprocess.Popen([*command, "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        alive.stdout.readline()
        files._swept.clear()
        write_atomically(tmp_path / "other.html", "new")
        assert len(list(tmp_path.glob(".*.part"))) == 1  # of the living one
    finally:
        alive.communicate(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.html", "page.html"]
