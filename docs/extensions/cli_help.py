"""``{cli-help} report``: what ``stn-tune report --help`` prints, at the width of a page."""

from __future__ import annotations

import os
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

COLUMNS = "76"


def help_of(command: str) -> str:
    """The help of a command of ``stn-tune``."""
    from stn_tune.cli import build_parser

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        (commands,) = (a.choices for a in build_parser()._actions if a.dest == "command" and a.choices is not None)
        return commands[command].format_help()
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


class CliHelp(SphinxDirective):
    """The help of one command as a literal block."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The block."""
        text = help_of(self.arguments[0])
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directive."""
    app.add_directive("cli-help", CliHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
