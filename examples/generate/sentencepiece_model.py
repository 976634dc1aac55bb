"""SentencePiece's own tokenizer with the tokens of a model's file: the rule that ours is compared with."""

import struct

import sentencepiece

BPE, FLOAT, VARINT, BYTES = 2, 5, 0, 2


def _varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number, kind, value):
    key = _varint(number << 3 | kind)
    if kind == BYTES:
        return key + _varint(len(value)) + value
    return key + (struct.pack("<f", value) if kind == FLOAT else _varint(value))


def processor(pieces):
    """From what sentencepiece_model.proto calls a ModelProto, with the settings that Gemma's has."""

    def piece(text, score, kind):
        kind = 2 if text == "<unk>" else kind  # a control token in GGUF files; SentencePiece wants one that is unknown
        return _field(1, BYTES, text.encode()) + _field(2, FLOAT, score) + _field(3, VARINT, kind)

    model = b"".join(_field(1, BYTES, piece(*entry)) for entry in pieces)
    model += _field(2, BYTES, _field(3, VARINT, BPE) + _field(35, VARINT, 1))  # trainer_spec: byte_fallback
    no_prefix_and_all_spaces = _field(3, VARINT, 0) + _field(4, VARINT, 0) + _field(5, VARINT, 1)
    model += _field(3, BYTES, _field(1, BYTES, b"identity") + no_prefix_and_all_spaces)
    return sentencepiece.SentencePieceProcessor(model_proto=model)
