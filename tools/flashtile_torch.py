"""libflashtile.so on PyTorch tensors, through ctypes: as much of flashtile.h as the GPU benchmark needs.

    library = Library("build/libflashtile.so")
    call = library.forward(q, k, v, out, lse, causal=True)     # (batch, seqlen, heads, head_dim), any strides
    call()                                                     # submits it; the structs are made once
    backward = library.backward(q, k, v, out, lse, dout, dq, dk, dv, causal=True, deterministic=True)
"""

import ctypes as c

import torch

DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
CPU, CUDA = 1, 2


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("device_type", c.c_int32), ("device_id", c.c_int32),
                ("rank", c.c_int32), ("shape", c.c_int64 * 6), ("stride", c.c_int64 * 6)]


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("causal", c.c_int32), ("alignment", c.c_int32), ("has_scale", c.c_int32),
                ("scale", c.c_float), ("softcap", c.c_float), ("window_left", c.c_int64), ("window_right", c.c_int64),
                ("dropout", c.c_double), ("seed", c.c_uint64), ("offset", c.c_uint64), ("seed_ptr", c.c_void_p),
                ("offset_ptr", c.c_void_p), ("deterministic", c.c_int32), ("batch_invariant", c.c_int32),
                ("check_values", c.c_int32), ("threads", c.c_int32), ("isa", c.c_int32), ("executor", c.c_void_p),
                ("stream", c.c_void_p), ("workspace", c.c_void_p), ("workspace_size", c.c_size_t)]


def pointers(*names):
    return [(name, c.POINTER(Tensor)) for name in names]


class Inputs(c.Structure):
    _fields_ = [("size", c.c_size_t),
                *pointers("q", "k", "v", "alibi_slopes", "bias", "mask", "cu_seqlens_q", "cu_seqlens_k", "seqused_k"),
                ("max_seqlen_q", c.c_int64), ("max_seqlen_k", c.c_int64)]


class Outputs(c.Structure):
    _fields_ = [("size", c.c_size_t), *pointers("out", "lse")]


class Gradients(c.Structure):
    _fields_ = [("size", c.c_size_t), *pointers("out", "lse", "dout", "dlse", "dq", "dk", "dv", "dbias")]


def view(tensor):
    t = Tensor(tensor.data_ptr(), DTYPES[tensor.dtype], CUDA if tensor.is_cuda else CPU, tensor.device.index or 0,
               tensor.dim())
    t.shape[: tensor.dim()] = tensor.shape
    t.stride[: tensor.dim()] = tensor.stride()
    return t


def filled(struct, **tensors):
    """A struct with pointers to views, which it keeps alive."""
    views = {name: view(tensor) for name, tensor in tensors.items() if tensor is not None}
    result = struct(size=c.sizeof(struct), **{name: c.pointer(t) for name, t in views.items()})
    result.kept = views, tensors
    return result


class Call:
    def __init__(self, library, function, options, inputs, results):
        self.library, self.function = library, function
        self.kept = options, inputs, results
        self.arguments = c.byref(options), c.byref(inputs), c.byref(results)

    def __call__(self):
        if self.function(*self.arguments) != 0:
            raise RuntimeError(self.library.flashtile_last_error().decode())

    def workspace(self):
        """Bytes that the call uses beside its results."""
        size = c.c_size_t()
        if getattr(self.library, self.function.__name__ + "_workspace")(*self.arguments, c.byref(size)) != 0:
            raise RuntimeError(self.library.flashtile_last_error().decode())
        return size.value


class Library:
    def __init__(self, path):
        self.library = c.CDLL(path)
        for name in ("flashtile_last_error", "flashtile_last_run", "flashtile_version"):
            getattr(self.library, name).restype = c.c_char_p

    def version(self):
        return self.library.flashtile_version().decode()

    def last_run(self):
        return self.library.flashtile_last_run().decode()

    def forward(self, q, k, v, out, lse, **options):
        return Call(self.library, self.library.flashtile_forward, self.options(q, **options), self.inputs(q, k, v),
                    filled(Outputs, out=out, lse=lse))

    def backward(self, q, k, v, out, lse, dout, dq, dk, dv, **options):
        return Call(self.library, self.library.flashtile_backward, self.options(q, **options), self.inputs(q, k, v),
                    filled(Gradients, out=out, lse=lse, dout=dout, dq=dq, dk=dk, dv=dv))

    @staticmethod
    def inputs(q, k, v):
        inputs = filled(Inputs, q=q, k=k, v=v)
        inputs.max_seqlen_q = inputs.max_seqlen_k = -1
        return inputs

    @staticmethod
    def options(q, causal=False, dropout=0.0, seed=0, deterministic=False):
        stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else None
        return Options(size=c.sizeof(Options), causal=int(causal), window_left=-1, window_right=-1, dropout=dropout,
                       seed=seed, deterministic=int(deterministic), stream=stream)
