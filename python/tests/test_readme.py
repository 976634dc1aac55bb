"""The README's examples run, each in a process of its own, and the package's README has the same ones."""

import re
import subprocess
import sys
from pathlib import Path

import needs
import pytest

ROOT = Path(__file__).parents[2]
# What is true after each.
CLAIMS = {
    "flashtile.attention": "assert out.shape == q.shape and all(t.grad.abs().sum() > 0 for t in (q, k, v))",
    "flashtile.append_kv": "assert torch.equal(out[0], v[0]) and out[1].abs().sum() > 0",  # the first sees one key
    "flash_attn_func": "torch.testing.assert_close(packed, out.flatten(0, 1), atol=0.02, rtol=0.02)",
    "flashtile.numpy": "assert out.shape == q.shape and abs(dv.sum() / out.size - 1) < 1e-4",  # a row of P has sum 1
    "flashtile.jax": "assert out.shape == q.shape and out.dtype == dv.dtype and abs(dv.sum() / out.size - 1) < 1e-2",
    "transformers": "assert model.config._attn_implementation == 'tiled_attention' and tokens.shape[1] <= 24",
}


def examples(readme):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / readme).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not (ROOT / "README.md").is_file(), reason="needs the repository")
@pytest.mark.parametrize("number, name", list(enumerate(CLAIMS)), ids=list(CLAIMS))
def test_example(number, name):
    if name == "transformers":
        needs.transformers()
    if name == "flashtile.jax":
        pytest.importorskip("jax")
    found = examples("README.md")
    assert len(found) == len(CLAIMS) and found == examples("python/README.md")
    assert name in found[number] and found[number].count("\n") <= 11
    subprocess.run([sys.executable, "-c", found[number] + CLAIMS[name]], check=True)
