"""Skips tests whose packages are missing or do not take this PyTorch, and tests of what an older PyTorch does not
have."""

import pytest
import torch


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
