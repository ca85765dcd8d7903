"""A method of nobody's, for test_run.py: a module, because it is run in another process."""

from __future__ import annotations

from baselines import Plan, Setting

ADDED = 0.1


def plan(s: Setting) -> Plan:
    """The final values of another method, a little larger."""
    return Plan(s.problem.fixed(), {"fc1_dropout": s.earlier["fixed"].final["fc1_dropout"] + ADDED}, samples=1)
