"""Eq. 10: layers that compute with one λ+ε per example. One layer, one file."""
