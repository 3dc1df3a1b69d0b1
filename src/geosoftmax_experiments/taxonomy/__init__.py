"""Taxonomies: what a tree over the classes is good for, on 20 newsgroups."""
