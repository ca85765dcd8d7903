"""Measurements of single parts: what a step costs, how good a searcher is, how right a hypergradient is."""
