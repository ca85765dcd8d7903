"""Optional packages that are missing or too old, in one line."""

from __future__ import annotations

from importlib import metadata

import pytest
import pytorch_lightning

from stn_tune.integrations.lightning import PACKAGES
from stn_tune.integrations.packages import found_in, require


@pytest.fixture
def installed(monkeypatch):
    """Versions by package, in place of what is there."""
    versions: dict[str, str] = {}

    def version(package):
        if package not in versions:
            raise metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(metadata, "version", version)
    return versions


def test_missing(installed):
    with pytest.raises(ImportError) as error:
        require("lightning", lightning="2.5")
    assert str(error.value) == (
        "stn_tune.integrations.lightning needs lightning 2.5 or newer, which is not installed: "
        "pip install 'stn-tune[lightning]'"
    )


def test_too_old(installed):
    installed["transformers"] = "4.57.1"
    with pytest.raises(ImportError, match=r"transformers 5\.0 or newer, here is 4\.57\.1: pip install --upgrade"):
        require("huggingface", transformers="5.0")


@pytest.mark.parametrize("version", ["2.5", "2.5.1", "2.10.0", "3.0rc1", "2.5.0.dev20250101"])
def test_new_enough(installed, version):
    installed["lightning"] = version
    require("lightning", lightning="2.5")


def test_lightning_under_one_of_its_names(installed):
    installed |= {"pytorch-lightning": "2.6.6", "lightning": "1.9"}
    assert found_in("lightning", "2.5", PACKAGES, "Callback") == (pytorch_lightning.Callback,)
    installed["pytorch-lightning"] = "1.9"
    with pytest.raises(ImportError, match=r"needs lightning 2\.5 or newer, here is 1\.9"):
        found_in("lightning", "2.5", PACKAGES, "Callback")
