"""What the package index shows: the README with absolute links and images, and the project's addresses.

In a checkout the README's links are relative, so that they work on any branch and in any fork. The release workflow
sets ``REPOSITORY_URL`` to where it runs; the links then lead to the files of the version's tag. Without it the README
stays as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Markdown whose relative links lead to the tag of ``version``: images to their bytes, all others to pages."""

    def absolute(found: re.Match[str]) -> str:
        image, words, path = found.groups()
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/v{version}/{path})"

    return RELATIVE.sub(absolute, text)


def addresses(repository: str) -> dict[str, str]:
    """The links beside the description."""
    urls = {"Paper": "https://arxiv.org/abs/1903.03088"}
    if repository:
        urls |= {
            "Repository": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        }
    return urls


class CustomMetadataHook(MetadataHookInterface):
    """Fills ``readme`` and ``urls`` of ``[project]``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Hatchling calls this before a wheel, an sdist or an editable installation is made."""
        repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        if repository:
            found = re.search(r'^__version__ = "(.+)"', (root / "stn_tune/__init__.py").read_text(), re.MULTILINE)
            assert found is not None
            text = with_absolute_links(text, repository, found[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository)
