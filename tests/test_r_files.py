"""Data frames in .rda files: what R writes is read, what is none is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from csdp import datasets
from csdp.datasets.r_files import find_r_file, read_r_frame
from csdp.errors import InputError

FRAME = {"year": [61, 62, None], "RPT": [15.04, float("nan"), -2.5]}


def word(value: int) -> bytes:
    return struct.pack(">i", value)


def symbol(text: str, known: dict[str, int]) -> bytes:
    if text in known:
        return word(0xFF | known[text] << 8)
    known[text] = len(known) + 1
    return word(1) + string(text)


def string(text: str) -> bytes:
    return word(9 | 64 << 12) + word(len(text)) + text.encode()


def strings(*texts: str) -> bytes:
    return word(16) + word(len(texts)) + b"".join(map(string, texts))


def column(values: list[float | None]) -> bytes:
    if all(value is None or isinstance(value, int) for value in values):
        return word(13) + word(len(values)) + b"".join(word(-(2**31) if v is None else int(v)) for v in values)
    return word(14) + word(len(values)) + b"".join(struct.pack(">d", v) for v in values)


def rda(frames: dict[str, dict[str, list[float | None]]], version: int = 2) -> bytes:
    """What R's save() writes for data frames, by the description of the format in "R Internals"."""
    head = b"RDX%d\nX\n" % version + word(version) + word(0x40300) + word(0x20300)
    if version == 3:
        head += word(5) + b"UTF-8"
    known: dict[str, int] = {}
    body = b""
    for name, frame in frames.items():
        body += word(2 | 0x400) + symbol(name, known)
        body += word(19 | 0x100 | 0x200) + word(len(frame)) + b"".join(map(column, frame.values()))
        rows = word(13) + word(2) + word(-(2**31)) + word(-3)
        for label, value in (("names", strings(*frame)), ("class", strings("data.frame")), ("row.names", rows)):
            body += word(2 | 0x400) + symbol(label, known) + value
        body += word(254)
    return head + body + word(254)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("press", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_frame_is_read(tmp_path, version, press):
    file = tmp_path / "wind.rda"
    file.write_bytes(press(rda({"other": {"a": [1.0, 2.0, 3.0]}, "wind": FRAME}, version)))
    read = read_r_frame(file, "wind")
    assert list(read) == list(FRAME)
    np.testing.assert_array_equal(read["year"], [61, 62, np.nan])
    np.testing.assert_array_equal(read["RPT"], FRAME["RPT"])


@pytest.mark.parametrize("make", [lambda raw: raw[:-40], lambda raw: b"", lambda raw: b"RDA2" + raw, gzip.compress])
def test_what_is_no_frame_is_refused(tmp_path, make):
    file = tmp_path / "wind.rda"
    file.write_bytes(make(rda({"wind": FRAME})) if make is not gzip.compress else gzip.compress(b"x")[:-3])
    with pytest.raises(InputError, match=r"wind.rda: no data frame 'wind' of numbers"):
        read_r_frame(file, "wind")


def test_a_frame_of_another_name_or_of_text_is_refused(tmp_path):
    file = tmp_path / "wind.rda"
    file.write_bytes(rda({"air": FRAME}))
    with pytest.raises(InputError, match="'wind'"):
        read_r_frame(file, "wind")
    raw = rda({"wind": FRAME})
    file.write_bytes(raw.replace(word(14), word(3)))  # a function in place of a column
    with pytest.raises(InputError, match="type 3"):
        read_r_frame(file, "wind")


def test_a_library_named_in_the_environment_comes_first(tmp_path, monkeypatch):
    folder = tmp_path / "library" / "gstat" / "data"
    folder.mkdir(parents=True)
    dates = {"year": [61, 61], "month": [1, 1], "day": [1, 2]}
    (folder / "wind.rda").write_bytes(rda({"wind": {**dates, "RPT": [15.04, 14.71], "VAL": [14.96, 16.88]}}))
    monkeypatch.setenv("R_LIBS", os.pathsep.join([str(tmp_path / "nowhere"), str(tmp_path / "library")]))
    assert find_r_file("gstat", "data/wind.rda") == folder / "wind.rda"
    readings = datasets.load("irish_wind").readings
    assert readings.names == ("RPT", "VAL")
    assert readings.readings.tolist() == [[15.04, 14.96], [14.71, 16.88]]
    assert str(readings.times[1]) == "1961-01-02T00:00:00"


def test_r_itself_writes_what_is_read(tmp_path: Path):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed (apt-get install r-base-core)")
    script = "wind <- data.frame(year = c(61L, NA), RPT = c(15.04, NaN)); save(wind, file = 'wind.rda')"
    subprocess.run(["Rscript", "-e", script], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    read = read_r_frame(tmp_path / "wind.rda", "wind")
    np.testing.assert_array_equal(read["year"], [61, np.nan])
    np.testing.assert_array_equal(read["RPT"], [15.04, np.nan])
