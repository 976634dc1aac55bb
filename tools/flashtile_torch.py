"""Calls of a given libflashtile.so on PyTorch tensors, prepared once and made many times, for the GPU benchmark.
The work is the Python package's (python/flashtile), which is taken from the tree.

    library = Library("build/libflashtile.so")
    call = library.forward(q, k, v, out, lse, causal=True)     # (batch, seqlen, heads, head_dim), any strides
    call()                                                     # submits it; the structs are made once
    backward = library.backward(q, k, v, out, lse, dout, dq, dk, dv, causal=True, deterministic=True)
    packed = library.forward(q, k, v, out, lse, cu_seqlens=starts, max_seqlen=4096)     # (tokens, heads, head_dim)
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch


class Library:
    def __init__(self, path):
        os.environ["FLASHTILE_LIBRARY"] = str(Path(path).resolve())
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
        from flashtile import _call, _functions, _library, _options, _structs
        self.abi, self.loaded, self.options, self.structs = _call, _library, _options, _structs
        self.functions = _functions

    def version(self):
        return self.loaded.text("version")

    def last_run(self):
        return self.loaded.text("last_run")

    def forward(self, q, k, v, out, lse, **options):
        return self.prepared("forward", (q, k, v), (), (out, lse), **options)

    def forward_e4m3(self, q, k, v, out, lse, scales, scale_block=0, causal=False):
        """The same of torch.float8_e4m3fn, or of k and v in it beside a 16-bit q; `scales` are q's, k's and v's."""
        structs, options = self.structs, self.options.CallOptions(causal=int(causal))
        names, results = (*structs.INPUT_NAMES, *structs.SCALE_NAMES), structs.RESULT_NAMES["forward"]
        parts = (self.abi.inputs_part(names, options, scale_block=scale_block),
                 structs.Part(structs.RESULTS["forward"], results))
        given = (q, k, v, *(None,) * (len(structs.INPUT_NAMES) - 3), *scales)
        call = self.abi.FilledCall("forward", parts, (*given, out, lse), (*names, *results), options)
        return Prepared(self.loaded, call, None, (given, out, lse))

    def backward(self, q, k, v, out, lse, dout, dq, dk, dv, **options):
        return self.prepared("backward", (q, k, v), (out, lse, dout, None), (dq, dk, dv, None, None), **options)

    def prepared(self, name, inputs, forwards, made, causal=False, window=(-1, -1), softcap=0.0, dropout=0.0, seed=0,
                 deterministic=False, exact_max=False, alibi_slopes=None, bias=None, mask=None, seqused_k=None,
                 cu_seqlens=None, max_seqlen=-1, score=None, mask_function=None, function_tensors=None,
                 block_lists=None):
        rng = torch.tensor([seed, 0], device=inputs[0].device) if dropout else None
        given = (*inputs, alibi_slopes, bias, mask, cu_seqlens, cu_seqlens, seqused_k, None,
                 *self.structs.ONE_FOR_ALL, *forwards)
        options = self.options.CallOptions(
            max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen, causal=int(causal), softcap=softcap,
            window_left=window[0], window_right=window[1], dropout=dropout, deterministic=deterministic,
            exact_max=exact_max)
        *lists, size = block_lists or ((),)  # counts and indices, and queries and keys of a block
        call = self.call(name, given, made, score, mask_function, function_tensors or {}, lists, size, options)
        made = (*made, *(function_tensors or {}).values(), *lists)
        return Prepared(self.loaded, call, rng, (given, made))

    def call(self, name, given, made, score, mask, tensors, lists, block_size, options):
        if score is None and mask is None and not lists:
            return self.abi.Call(name, given, made, options)
        structs = self.structs
        parts = (structs.inputs_part(structs.INPUT_NAMES, options), structs.Part(structs.RESULTS[name],
                                                                                 structs.RESULT_NAMES[name]))
        functions = self.functions.Functions(score, mask, tuple(tensors), block_size)
        names = (*structs.INPUT_NAMES, *structs.RESULT_NAMES[name], *tensors, *structs.LIST_NAMES[:len(lists)])
        return self.abi.FilledCall(name, parts, (*given, *made, *tensors.values(), *lists), names, options, functions)

    def use_choice(self, choice):
        """This process takes a tile that Prepared.alternatives() names; None: those of the tables."""
        library = self.loaded.library
        status = (library.flashtile_forget_choices(0) if choice is None
                  else library.flashtile_use_choice(choice.encode(), 0))
        if status:
            self.loaded.fail(status)

    def dropout_mask(self, dropout, seed, shape, device):
        """Which probabilities are kept, (batch, heads, seqlen_q, seqlen_k)."""
        keep = torch.empty(shape, dtype=torch.bool, device=device)
        self.abi.dropout_mask(dropout, torch.tensor([seed, 0], device=device), keep)
        return keep


class Prepared:
    def __init__(self, loaded, call, rng, kept):
        self.loaded, self.call, self.rng, self.kept = loaded, call, rng, kept

    def __call__(self):
        self.call.submit(self.rng)

    def workspace(self):
        """Bytes that the call uses beside its results."""
        return self.call.workspace()

    def alternatives(self):
        """{tile: choice} of the forward pass's main kernel: what `flashtile tune` would measure."""
        return {tile["tile"]: tile["choice"] for tile in self.plan()["alternatives"]}

    def forward_tile(self):
        """(queries, keys) of a block of the CUDA kernel that the forward pass of these inputs gets."""
        plan = self.plan()
        return next((kernel["Br"], kernel["Bc"]) for kernel in plan["kernels"] if kernel["kernel"] == plan["candidate"])

    def plan(self):
        """The plan of the forward pass of these inputs, of flashtile_plan_report."""
        text = ctypes.c_char_p()
        options, inputs = (ctypes.c_void_p(address) for address in self.call.arguments[:2])
        if status := self.loaded.library.flashtile_plan_report(options, inputs, None, 0, ctypes.byref(text)):
            self.loaded.fail(status)
        return json.loads(text.value)["forward"]
