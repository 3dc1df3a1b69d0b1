"""Ordinal regression: the comparison of the paper's Table 1, and models for one's own tables."""
