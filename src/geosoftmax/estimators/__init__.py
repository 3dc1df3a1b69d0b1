"""Linear models for classes with a geometry, as scikit-learn estimators.

Imported by name, ``from geosoftmax.estimators import GeometricClassifier``, so that the rest of the
library neither needs scikit-learn nor waits for it.
"""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'geosoftmax.estimators needs scikit-learn: pip install "geosoftmax[sklearn]"',
        name=error.name,
    ) from None

from geosoftmax.estimators._classifier import GeometricClassifier
from geosoftmax.estimators._cv import GeometricClassifierCV

__all__ = ["GeometricClassifier", "GeometricClassifierCV"]
