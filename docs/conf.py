"""The site: furo, MyST and autodoc. `make docs` builds it with warnings as errors."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

import stn_tune  # noqa: E402

project = "stn_tune"
author = "the stn_tune authors"
copyright = "the stn_tune authors; Apache License 2.0"
version = release = stn_tune.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "cli_help",
    "mathml",
    "public_names",
    "results",
]
exclude_patterns = ["_build", "extensions"]
html_theme = "furo"
html_title = "stn_tune"
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_dark_style = "monokai"
html_math_renderer = "mathml"
html_copy_source = html_show_sphinx = False

myst_enable_extensions = ["deflist", "dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # docstrings say what arguments are; signatures stay readable
autodoc_preserve_defaults = True
napoleon_use_rtype = False

nitpicky = True  # a role that names nothing is a broken link
nitpick_ignore_regex = [("py:.*", r"(torch|ray|pandas|numpy|lightning|transformers|matplotlib|collections|tune)\..*")]

public_modules = [
    "stn_tune",
    "stn_tune.nn",
    "stn_tune.augment",
    "stn_tune.analysis",
    "stn_tune.algorithms.registry",
    "stn_tune.testing.algorithms",
    "stn_tune.testing.searchers",
    "stn_tune.integrations.lightning",
    "stn_tune.integrations.huggingface",
]
