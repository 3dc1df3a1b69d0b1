"""Linear models for classes with a geometry, as scikit-learn estimators.

Import them by name: ``from geosoftmax.estimators import GeometricClassifier``. The rest of the
library does not import scikit-learn.
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
