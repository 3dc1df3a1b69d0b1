"""Small projects in DeepLabCut's layout, with discs for body parts."""

import csv

import numpy as np
from PIL import Image

PARTS = ("nose", "tail")
SIZE = (48, 64)


def picture(points, size=SIZE, rng=None):
    """A grey picture with a dark disc at the first point and a bright one at the second."""
    rng = rng or np.random.default_rng(0)
    rows, columns = np.indices(size)
    grey = 128 + 6 * rng.standard_normal(size)
    for k, (row, column) in enumerate(points):
        if not np.isnan(row):
            disc = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 2.0**2))
            grey += (90 if k % 2 else -90) * disc
    return np.clip(grey, 0, 255).astype(np.uint8)


def random_points(count, rng, size=SIZE):
    return rng.uniform(6, np.asarray(size) - 7.0, (count, len(PARTS), 2))


def write_table(path, frames, points, columns=1):
    """Write a table as DeepLabCut does: (row, column) become x, y."""
    empty = [""] * (columns - 1)
    rows = [
        ["scorer", *empty, *["Ada"] * (2 * len(PARTS))],
        ["bodyparts", *empty, *(part for part in PARTS for _ in "xy")],
        ["coords", *empty, *["x", "y"] * len(PARTS)],
    ]
    for frame, of_frame in zip(frames, points, strict=True):
        name = frame.split("/") if columns == 3 else [frame]
        cells = [
            "" if np.isnan(v) else f"{v:.6f}" for row, column in of_frame for v in (column, row)
        ]
        rows.append([*name, *cells])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_project(folder, count=12, seed=0, video="v1", columns=1, missing=True):
    """Write a project; return its points, in (row, column)."""
    rng = np.random.default_rng(seed)
    points = random_points(count, rng)
    if missing:
        points[1, 0] = np.nan
    place = folder / "labeled-data" / video
    place.mkdir(parents=True)
    frames = [f"labeled-data/{video}/img{k:03}.png" for k in range(count)]
    for frame, of_frame in zip(frames, points, strict=True):
        Image.fromarray(picture(of_frame, rng=rng)).save(folder / frame)
    write_table(place / "CollectedData_Ada.csv", frames, points, columns)
    return points
