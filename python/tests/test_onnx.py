"""torch.onnx.export, the exporter on torch.export: flashtile.attention is refused by name, since ONNX has no operator
for it, and within flashtile.sdpa() PyTorch's function is exported. Skipped where the ONNX packages are missing."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import flashtile
from conftest import DEVICE
from oracle import dense

pytest.importorskip("onnxscript")
reference = pytest.importorskip("onnx.reference")


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return flashtile.attention(q, k, v, causal=True)


class InContext(torch.nn.Module):
    def forward(self, q, k, v):
        with flashtile.sdpa():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_attention_is_refused_by_name():
    q = torch.randn(2, 9, 3, 8)
    with pytest.raises(RuntimeError, match=r"No ONNX function found for .*flashtile\.forward"):
        torch.onnx.export(Attention().eval(), (q, q, q), dynamo=True, verbose=False)


@pytest.mark.skipif(DEVICE != "cpu", reason="the reference evaluator takes NumPy's arrays")
def test_sdpa_exports_pytorchs():
    tensors = tuple(torch.randn(2, 3, 9, 8) for _ in range(3))
    exported = torch.onnx.export(InContext().eval(), tensors, dynamo=True, verbose=False)
    inputs = {value.name: tensor.numpy() for value, tensor in zip(exported.model.graph.inputs, tensors)}
    (out,) = reference.ReferenceEvaluator(exported.model_proto).run(None, inputs)
    expected, _ = dense(*(t.double().transpose(1, 2) for t in tensors), causal=True)
    np.testing.assert_allclose(out, expected.transpose(1, 2), atol=1e-5, rtol=1e-4)
