"""Searchers compared: on functions of known minima, and on tables of trained networks that others have measured."""
