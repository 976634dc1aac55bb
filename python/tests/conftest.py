"""Every test starts from the same seed. FLASHTILE_TEST_DEVICE=cuda makes the tests' tensors on the GPU."""

import os

import pytest

torch = pytest.importorskip("torch", reason="the package's tests need PyTorch")

# JAX's tests of several devices have CPUs for them. It reads this when it is first used.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
DEVICE = os.environ.get("FLASHTILE_TEST_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def device():
    torch.manual_seed(0)  # of every device's generator
    if DEVICE != "cpu":
        torch.set_default_device(DEVICE)
    return torch.device(DEVICE)
