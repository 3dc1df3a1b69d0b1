"""Every check of what a user hands over, and the messages that teach what to do instead.

Checks of shape, dtype and device need no data and run before anything else, also under
``torch.compile`` and ``torch.func``. Checks of values need the numbers; they run inside the opaque
operators of ``operators``, where tensors are concrete whatever transform surrounds the call.

One file for each kind of thing that is checked. They are imported from here, but for `trees`, of
which `TreeCost` alone has use.
"""

from geosoftmax.validation.costs import *
from geosoftmax.validation.losses import *
from geosoftmax.validation.options import *
from geosoftmax.validation.points import *
from geosoftmax.validation.reading import *
from geosoftmax.validation.signals import *
