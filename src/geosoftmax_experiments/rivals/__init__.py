"""The losses that the geometric logistic loss is compared with: one file for each family.

A loss takes scores of shape (n, d), a target and, where it knows the geometry, a cost; it returns
one value for each sample. A target is labels of shape (n,), or distributions of shape (n, d) where
the loss is defined for them. `table.RIVALS` lists all of them, each with its link, the decision
that belongs to it, and what is known of it.
"""
