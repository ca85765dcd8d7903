"""``{results} README.md``: a page of results/, or one ``:section:`` of it, so that no number is typed twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LOCAL_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def section_of(text: str, title: str) -> str | None:
    """What is below the heading ``## title``, up to the next one; None where there is no such heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else None


class Results(SphinxDirective):
    """Markdown of results/, its links to other files there as plain words."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"section": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """The nodes of the page or section."""
        path = Path(self.env.srcdir).parent / "results" / self.arguments[0]
        self.env.note_dependency(str(path))
        text: str | None = path.read_text(encoding="utf-8")
        if title := self.options.get("section"):
            text = section_of(text or "", title)
        if text is None:
            raise self.error(f"{path} has no section '## {title}'")
        holder = nodes.Element()
        lines = LOCAL_LINK.sub(r"\1", text).splitlines()
        self.state.nested_parse(StringList(lines, source=str(path)), self.content_offset, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
