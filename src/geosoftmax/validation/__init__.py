"""All checks of user input, with error messages that explain what to do.

Checks of shape, dtype and device need no values. They run first, also under ``torch.compile`` and
``torch.func``. Checks of values run inside the opaque operators of ``operators``, where tensors are
concrete under every transform.

There is one file for each kind of input. Import the checks from here, except those of `trees`,
which only `TreeCost` uses.
"""

from geosoftmax.validation.arguments import *
from geosoftmax.validation.costs import *
from geosoftmax.validation.points import *
from geosoftmax.validation.reading import *
from geosoftmax.validation.signals import *
