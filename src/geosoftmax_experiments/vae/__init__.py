"""Variational auto-encoders of drawings, with a geometric output layer."""
