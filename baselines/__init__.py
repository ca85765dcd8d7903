"""The tuners that an STN is compared with, and the STN itself, each as one entry of METHODS."""

from baselines.methods import METHODS, Found, Method, Plan, Setting
from baselines.points import GridSearch, RandomSearch
from baselines.skopt_search import SkOptSearch

__all__ = ["METHODS", "Found", "GridSearch", "Method", "Plan", "RandomSearch", "Setting", "SkOptSearch"]
