"""Costs between outputs: the geometry that the geometric softmax uses.

==================  ==============================================  ===========================
cost                what it is for                                  product with ``K``
==================  ==============================================  ===========================
``ZeroOneCost``     classes without geometry (softmax, sparsemax)   O(d)
``LineCost``        ordered classes, even or uneven                 O(d) for p = 1
``TreeCost``        taxonomies                                      O(d)
``GridCost``        pixels and voxels                               one small product per axis
``DenseCost``       any other: a matrix, points, embeddings         O(d²)
==================  ==============================================  ===========================
"""

from geosoftmax.costs.base import Cost
from geosoftmax.costs.dense import DenseCost, Repair
from geosoftmax.costs.grid import GridCost
from geosoftmax.costs.line import LineCost
from geosoftmax.costs.tree import TreeCost
from geosoftmax.costs.zero_one import ZeroOneCost

__all__ = ["Cost", "DenseCost", "GridCost", "LineCost", "Repair", "TreeCost", "ZeroOneCost"]
