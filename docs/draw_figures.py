"""Draw the figures that pages show, small, into ``docs/results/figures``.

``python docs/draw_figures.py``; those of ``geosoftmax figures`` have more colours and are larger.
"""

import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console

from geosoftmax_experiments import files
from geosoftmax_experiments.figures import run, save
from geosoftmax_experiments.figures.spectra import draw_spectra

FOLDER = Path(__file__).parent / "results" / "figures"
#: Those that need no data and no training.
NAMES = ("fields", "levels", "cats", "mnist", "drawings")


def main() -> None:
    """Draw each, and write it with 256 colours: less than half the bytes, and no one sees it."""
    with tempfile.TemporaryDirectory() as folder:
        run(NAMES, Path(folder), Console(quiet=True))
        save(draw_spectra(), Path(folder) / "spectra")
        for name in (*NAMES, "spectra"):
            with Image.open(Path(folder) / f"{name}.png") as drawn:
                small = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            files.write(
                FOLDER / f"{name}.png", lambda part, it=small: it.save(part, "PNG", optimize=True)
            )
            print(FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
