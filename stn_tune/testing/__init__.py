"""Conformance suites: what a plug-in of your own must do, as pytest classes to inherit from."""
