"""Every test starts from the same seed, and on few threads: the machines that run them are small."""

import pytest

torch = pytest.importorskip("torch", reason="the package's tests need PyTorch")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
