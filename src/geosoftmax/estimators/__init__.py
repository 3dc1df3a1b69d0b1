"""Linear models for classes with a geometry, as scikit-learn estimators.

Imported by name, ``from geosoftmax.estimators import GeometricClassifier``, so that the rest of the
library does not wait for scikit-learn.
"""

from geosoftmax.estimators._classifier import GeometricClassifier
from geosoftmax.estimators._cv import GeometricClassifierCV

__all__ = ["GeometricClassifier", "GeometricClassifierCV"]
