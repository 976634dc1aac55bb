"""The file that flashtile-generate maps, a .safetensors: written by convert.py and by tiny_model.py, read by the tests.

Its metadata has the configuration as JSON under "config". Beside the weights lie the tokenizer's tokens, one after the
other: token n is the bytes of `tokenizer.text` before `tokenizer.ends`[n], with a score and a type (SentencePiece's:
1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte).
"""

import json

import numpy

ALIGNMENT = 64  # of the first value: rows of weights then start at cache lines


def to_bf16(values):
    """The bits of fp32 values rounded to bf16, to nearest even; there are no NaNs among weights."""
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def write_model(path, config, weights, pieces, dtype):
    texts = [text.encode() for text, _, _ in pieces]
    tensors = {
        name: ("BF16", to_bf16(values)) if dtype == "bf16" else ("F32", values.astype(numpy.float32))
        for name, values in weights.items()
    }
    tensors["tokenizer.ends"] = ("I64", numpy.cumsum([len(text) for text in texts], dtype=numpy.int64))
    tensors["tokenizer.scores"] = ("F32", numpy.array([score for _, score, _ in pieces], numpy.float32))
    tensors["tokenizer.types"] = ("U8", numpy.array([kind for _, _, kind in pieces], numpy.uint8))
    tensors["tokenizer.text"] = ("U8", numpy.frombuffer(b"".join(texts), numpy.uint8))

    header, offset = {"__metadata__": {"config": json.dumps(config)}}, 0
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, values in tensors.values():
            file.write(values.tobytes())


def read_model(path):
    """The configuration, the weights as fp32 arrays, the pieces and the dtype's name, as write_model takes them."""
    data = numpy.memmap(path, numpy.uint8, "r")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    config = json.loads(header.pop("__metadata__")["config"])

    def values(name):
        entry = header[name]
        begin, end = entry["data_offsets"]
        stored = numpy.dtype({"F32": "f4", "BF16": "u2", "I64": "i8", "U8": "u1"}[entry["dtype"]])
        array = data[start + begin : start + end].view(stored).reshape(entry["shape"])
        return (array.astype(numpy.uint32) << 16).view(numpy.float32) if entry["dtype"] == "BF16" else array

    weights = {name: values(name) for name in header if not name.startswith("tokenizer.")}
    ends = values("tokenizer.ends").tolist()
    text = values("tokenizer.text").tobytes()
    texts = [text[begin:end].decode() for begin, end in zip([0, *ends], ends)]
    pieces = list(zip(texts, values("tokenizer.scores").tolist(), values("tokenizer.types").tolist()))
    dtype = {"F32": "fp32", "BF16": "bf16"}[header["model.norm.weight"]["dtype"]]
    return config, weights, pieces, dtype
