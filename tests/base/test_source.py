"""Files are read up to a limit, whatever they are, and nothing makes the reading wait or grow for
ever.
"""

import gzip
import io
import os
import sys

import pytest

from ppsim.base.source import read_bytes, read_text
from ppsim.errors import InputError


def refusal(path, **how) -> InputError:
    with pytest.raises(InputError) as caught:
        read_bytes(str(path), **how)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_file_comes_back_whole_and_without_its_byte_order_mark(tmp_path):
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbf" + "0F0 µ".encode())
    assert read_text(str(tmp_path / "x"), "") == "0F0 µ"


def test_any_gzipped_file_is_decompressed_whatever_its_name(tmp_path):
    (tmp_path / "x.csv").write_bytes(gzip.compress(b"0F0,") + gzip.compress(b"0B0") + b"\0" * 8)
    assert read_bytes(str(tmp_path / "x.csv")) == b"0F0,0B0"


@pytest.mark.parametrize("at", [5, 12, 200, -9, -3])
def test_a_damaged_gzip_stream_is_refused(tmp_path, at):
    content = bytearray(gzip.compress(os.urandom(400)))
    content[at] ^= 0x55
    (tmp_path / "x.gz").write_bytes(content[: len(content) + min(at, 0)] if at == -9 else content)
    if at == 5:  # the time of writing, which says nothing
        assert len(read_bytes(str(tmp_path / "x.gz"))) == 400
    else:
        assert "gzipped and incomplete" in str(refusal(tmp_path / "x.gz"))


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_file_beyond_the_limit_is_refused_with_the_way_to_raise_it(
    tmp_path, gzipped, monkeypatch
):
    """A gzip bomb too, before it is decompressed whole."""
    (tmp_path / "x").write_bytes(gzip.compress(b" " * (5 << 20)) if gzipped else b" " * (5 << 20))
    error = refusal(tmp_path / "x", largest=4 << 20)
    assert "larger than 4 MiB" in str(error)
    assert error.hint == "PPSIM_MAX_SIZE=16MiB in the environment raises the limit"
    monkeypatch.setenv("PPSIM_MAX_SIZE", "16MiB")
    assert len(read_bytes(str(tmp_path / "x"), largest=4 << 20)) == 5 << 20
    monkeypatch.setenv("PPSIM_MAX_SIZE", "much")
    assert "PPSIM_MAX_SIZE: not a size: 'much'" in str(refusal(tmp_path / "x"))


def test_pipes_and_devices_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        assert "is a pipe or a device, not a file" in str(refusal(path))


def test_folders_absent_files_and_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "absent", "No such"),
        (tmp_path / "loop", "symbolic"),
    ):
        assert why in str(refusal(path))


def test_standard_input_is_read_up_to_the_limit_and_may_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 2000)))
    assert "standard input is larger than 1,000 B" in str(refusal("-", stdin=True, largest=1000))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"abc"))))
    assert read_bytes("-", stdin=True) == b"abc"
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in str(refusal("-", stdin=True))
    assert "No such file" in str(refusal("-"))


def test_a_name_with_control_characters_is_shown_without_them(tmp_path):
    assert "\x1b" not in str(refusal(tmp_path / "\x1b]0;x\x07"))


def test_a_limit_of_nothing_is_not_its_own_way_out(tmp_path, monkeypatch):
    """The limit that is told lets the file in, whatever is set and however large it is."""
    (tmp_path / "x").write_bytes(b" " * (3 << 20))
    for least in ("0", "1", "2MiB"):
        monkeypatch.setenv("PPSIM_MAX_SIZE", least)
        hint = refusal(tmp_path / "x").hint
        monkeypatch.setenv("PPSIM_MAX_SIZE", hint.split()[0].partition("=")[2])
        assert len(read_bytes(str(tmp_path / "x"))) == 3 << 20
