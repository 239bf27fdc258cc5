"""Readings of packages that are installed beside this one; licence or size keep them out of the repository.

Debian has the R packages (`apt-get install r-cran-gstat r-cran-modeldata r-cran-surveillance`); the group
`study` of pyproject.toml has the rest.
"""

from __future__ import annotations

import lzma
import warnings
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import csdp

#: Where Debian puts R packages.
R_PACKAGES = Path("/usr/lib/R/site-library")
#: Columns of `Chicago` that are stations.
STATIONS = slice(1, 21)


class NotInstalledError(Exception):
    """The package with the data, or the one that reads it, is not installed."""


def read_wind() -> csdp.Readings:
    """Mean wind speed of every day at 12 stations in Ireland, 1961 to 1978, in knots (gstat, GPL-2+)."""
    table = _read_r_file("gstat", "data/wind.rda")["wind"]
    years = np.array([f"{1900 + year}" for year in table["year"]], dtype="datetime64[Y]")
    months = years.astype("datetime64[M]") + (table["month"].to_numpy(dtype=np.int64) - 1)
    days = months.astype("datetime64[D]") + (table["day"].to_numpy(dtype=np.int64) - 1)
    stations = list(table.columns[3:])
    return _read_days(days, {name: table[name].to_numpy(dtype=np.float64) for name in stations})


def read_influenza() -> csdp.Readings:
    """Cases of influenza a week in 140 districts of southern Germany, 2001 to 2008 (surveillance, GPL-2)."""
    cases = _read_r_file("surveillance", "data/fluBYBW.RData")["fluBYBW"].observed
    districts = [str(name) for name in cases.coords["dim_1"].to_numpy()]
    return csdp.Readings.from_array(cases.to_numpy(), names=districts)


def read_ridership() -> csdp.Readings:
    """Thousands of entries a day at 20 stations of the Chicago "L", 2001 to 2016 (modeldata, MIT)."""
    table = _read_r_database("modeldata", "Chicago")
    days = np.datetime64("1970-01-01") + table["date"].to_numpy().astype(np.int64)
    stations = list(table.columns[STATIONS])
    return _read_days(days, {name: table[name].to_numpy(dtype=np.float64) for name in stations})


def read_glucose() -> csdp.Readings:
    """Glucose of one person every half hour, 200 days, in mg/dl (bokeh_sampledata, public domain)."""
    try:
        file = Path(str(files("bokeh_sampledata"))) / "_data" / "CGM.csv.gz"
    except ModuleNotFoundError:
        raise NotInstalledError("bokeh_sampledata") from None
    every = {"step": "30min", "duplicates": "last", "resample": "last"}
    return csdp.read_readings(file, names=("glucose",), **every)


def _read_days(days: Any, columns: dict[str, Any]) -> csdp.Readings:
    """Daily readings with their dates."""
    return csdp.read_readings({"time": days.astype("datetime64[s]"), **columns}, step="1d")


def _import_rdata() -> Any:
    try:
        return import_module("rdata")
    except ModuleNotFoundError:
        raise NotInstalledError("rdata") from None


def _find(package: str, file: str) -> Path:
    path = R_PACKAGES / package / file
    if not path.exists():
        raise NotInstalledError(f"r-cran-{package}")
    return path


def _read_r_file(package: str, file: str) -> Any:
    """The objects in a file of an R package, by name."""
    path, rdata = _find(package, file), _import_rdata()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R classes that nobody needs here
        return rdata.read_rda(path)


def _read_r_database(package: str, name: str) -> Any:
    """One object of an R package whose data are in one database.

    The index gives the place of each object: four bytes with its length, one with the kind of compression
    ("Z", raw lzma), and what was compressed.
    """
    index, rdata = _find(package, "data/Rdata.rdx"), _import_rdata()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, length = (int(number) for number in rdata.read_rds(index)["variables"][name])
        stored = index.with_suffix(".rdb").read_bytes()[start : start + length]
        if stored[4:5] != b"Z":
            raise ValueError(f"{package}: {name} is compressed in an unexpected way; 'Z' (lzma) expected")
        plain = lzma.decompress(stored[5:], format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
        return rdata.conversion.convert(rdata.parser.parse_data(plain))
