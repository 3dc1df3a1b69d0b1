"""Losses of others, to compare with, as functions of torch."""
