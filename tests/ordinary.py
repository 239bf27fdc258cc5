"""Three ordinary files of readings, as people have them: none of them is as a program would wish."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from csdp import CoupledChain

BERLIN = ZoneInfo("Europe/Berlin")


def _levels(sequences: int, ticks: int, seed: int) -> np.ndarray:
    """States of sequences that follow each other a little and change slowly."""
    coupling = np.full((sequences, sequences), 0.1 / max(1, sequences - 1))
    np.fill_diagonal(coupling, 0.9 if sequences > 1 else 1.0)
    return CoupledChain(coupling, [[0.8, 0.2], [0.25, 0.75]]).simulate(ticks, seed=seed)


def write_sensors(path: Path, *, ticks: int = 700) -> None:
    """Wide, half-hourly, with offsets from UTC that change with summer time in October; rows and cells are missing."""
    rng = np.random.default_rng(1)
    cells = 19 + 3 * _levels(3, ticks, 1) + np.round(rng.normal(0, 0.4, (ticks, 3)), 1)
    start = datetime(2024, 10, 22, tzinfo=UTC)
    with path.open("w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle)
        rows.writerow(["timestamp", "kitchen", "hall", "bath"])
        for tick in range(ticks):
            if 200 <= tick < 212 or tick % 97 == 5:
                continue
            local = (start + timedelta(minutes=30 * tick)).astimezone(BERLIN)
            row = ["" if rng.random() < 0.02 else f"{cell:.1f}" for cell in cells[tick]]
            rows.writerow([local.isoformat(timespec="minutes"), *row])


def write_patients(path: Path, *, ticks: int = 300) -> None:
    """Long, one row for each patient and five minutes, with numbers as names and a column of remarks."""
    rng = np.random.default_rng(2)
    states = _levels(4, ticks, 2)
    start = datetime(2024, 3, 1, 8)
    with path.open("w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle, delimiter="\t")
        rows.writerow(["patient_id", "charttime", "heart_rate"])
        for tick in range(ticks):
            when = start + timedelta(minutes=5 * tick)
            for patient in range(4):
                if rng.random() < 0.03:
                    continue
                rate = 68 + 22 * states[tick, patient] + rng.integers(-5, 6)
                rows.writerow([1001 + patient, when.strftime("%Y-%m-%d %H:%M:%S"), int(rate)])


def write_meters(path: Path, *, ticks: int = 400) -> None:
    """Wide, with semicolons, decimal commas, Latin-1, dates in the German order, and lines that are there twice."""
    rng = np.random.default_rng(3)
    cells = 1.5 + 2 * _levels(2, ticks, 3) + rng.uniform(0, 0.9, (ticks, 2))
    start = datetime(2024, 5, 1)
    lines = ["Zeit;Küche;Büro"]
    for tick in range(ticks):
        when = (start + timedelta(minutes=15 * tick)).strftime("%d.%m.%Y %H:%M")
        words = [f"{cell:.2f}".replace(".", ",") for cell in cells[tick]]
        lines += [";".join([when, *words])] * (2 if tick % 50 == 7 else 1)
    lines.append(";".join([when, "2,00", words[1]]))  # a correction
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))


FILES = {"sensors.csv": write_sensors, "patients.txt": write_patients, "meters.csv": write_meters}
