"""Skips tests whose packages are missing or do not take this PyTorch, and tests of what an older PyTorch does not
have."""

import os

import pytest
import torch

# What forward takes where flashtile._call.SERVING_DEVICES has the tests' device.
CPU_ONLY = pytest.mark.skipif(os.environ.get("FLASHTILE_TEST_DEVICE", "cpu") != "cpu",
                              reason="CUDA refuses these arguments by name so far")


def transformers():
    """The package; a module or a test that calls this is skipped without it."""
    package = pytest.importorskip("transformers")
    if not package.utils.is_torch_available():
        pytest.skip(f"transformers {package.__version__} does not take PyTorch {torch.__version__}",
                    allow_module_level=True)
    return package


def pytorch(version, reason):
    """The mark of a test that needs this version of PyTorch, as "2.5"."""
    return pytest.mark.skipif(torch.__version__ < version, reason=f"PyTorch before {version} {reason}")
