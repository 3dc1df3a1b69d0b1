"""``python -m geosoftmax_experiments``: the same as ``geosoftmax``."""

from geosoftmax_experiments.cli import app

if __name__ == "__main__":
    app()
