"""The OpenVINO side of `flashtile bench --against=openvino`; bench_peer.py has the protocol.

The operator ScaledDotProductAttention (opset 13), alone in a model, compiled for "CPU" with tensors (batch, heads, seqlen,
head_dim), the layout that it documents. It computes in the inputs' type, fp32 or bf16, and has no backward pass.
"""

import os
import sys

try:
    import numpy
    import openvino
    from openvino import opset13
except ImportError as missing:
    sys.exit(f"bench_openvino.py: {missing}")

import bench_peer

# The type of ports, the hint, and the type of the same width that NumPy has.
DTYPES = {
    "fp32": (openvino.Type.f32, "f32", numpy.uint32),
    "bf16": (openvino.Type.bf16, "bf16", numpy.uint16),
}
CORE = openvino.Core()


class Attention:
    """The operator at one point of the grid, ready to be timed."""

    def __init__(self, request):
        r = request
        self.type, hint, self.bits = DTYPES[r["dtype"]]
        self.shape = [r["batch"], r["heads"], r["seqlen"], r["head_dim"]]
        ports = [opset13.parameter(self.shape, self.type) for _ in range(3)]
        attention = opset13.scaled_dot_product_attention(*ports, causal=r["causal"])
        compiled = CORE.compile_model(openvino.Model([attention], ports), "CPU", {
            "INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": r["threads"], "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1})
        computes = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if computes != hint:
            raise ValueError(f"it computes {r['dtype']} in {computes} on this CPU")
        self.call = compiled.create_infer_request()
        for index, name in enumerate(("q", "k", "v")):
            self.call.set_input_tensor(index, self.read(r["folder"], name))

    def read(self, folder, name):
        batch, heads, seqlen, head_dim = self.shape
        numbers = numpy.fromfile(os.path.join(folder, name), dtype=self.bits).reshape(batch, seqlen, heads, head_dim)
        tensor = openvino.Tensor(self.type, openvino.Shape(self.shape))
        tensor.data.view(self.bits)[...] = numbers.transpose(0, 2, 1, 3)
        return tensor

    def step(self):
        self.call.infer()

    def save(self, folder):
        bits = self.call.get_output_tensor(0).data.view(self.bits)
        if self.bits is numpy.uint16:  # bf16 is the upper half of an fp32
            bits = bits.astype(numpy.uint32) << 16
        out = bits.view(numpy.float32).transpose(0, 2, 1, 3)
        numpy.ascontiguousarray(out).tofile(os.path.join(folder, "out"))


if __name__ == "__main__":
    bench_peer.serve(Attention, openvino.__version__.split("-")[0], "/".join(
        sorted(CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))))
