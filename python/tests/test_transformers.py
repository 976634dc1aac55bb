"""Models of transformers with random weights: "flashtile" beside "eager", judged by dense attention in fp64 (eager's
own softmax stays in fp32 whatever the model's dtype)."""

import logging

import pytest
import torch

transformers = pytest.importorskip("transformers")

import flashtile  # noqa: E402
from oracle import dense  # noqa: E402

logging.getLogger("transformers").setLevel(logging.ERROR)

SMALL = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 96, "max_position_embeddings": 128}
GQA = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def config(name):
    t = transformers
    if name == "llama":
        return t.LlamaConfig(**GQA)
    if name == "mistral":
        return t.MistralConfig(**GQA, sliding_window=7)
    if name == "gemma2":
        return t.Gemma2Config(**GQA, head_dim=256, sliding_window=7, attn_logit_softcapping=3.0,
                              query_pre_attn_scalar=64)
    if name == "gemma3":
        return t.Gemma3TextConfig(**GQA, head_dim=256, sliding_window=7, layer_types=["sliding_attention",
                                                                                    "full_attention"])
    if name == "gpt2":
        return t.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=1,
                            eos_token_id=None, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    return t.BertConfig(**SMALL, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


MODELS = ("llama", "mistral", "gemma2", "gemma3", "gpt2", "bert")
DECODERS = MODELS[:-1]


def oracle(module, query, key, value, attention_mask, scaling=None, softcap=None, **_):
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    causal = attention_mask is None and module.is_causal and q.shape[1] > 1
    return dense(q, k, v, mask=attention_mask, causal=causal, scale=scaling, softcap=softcap or 0.0)[0], None


@pytest.fixture(scope="module", autouse=True)
def registered():
    flashtile.transformers.register()
    transformers.AttentionInterface.register("oracle", oracle)
    transformers.AttentionMaskInterface.register("oracle", transformers.masking_utils.sdpa_mask)


def models(name, *attentions):
    """The same model with each attention."""
    kind = transformers.AutoModelForCausalLM if name in DECODERS else transformers.AutoModelForMaskedLM
    torch.manual_seed(0)
    several = [kind.from_config(config(name), attn_implementation=attention).eval() for attention in attentions]
    for model in several[1:]:
        model.load_state_dict(several[0].state_dict())
    return several


def padded(name, length=19):
    ids = torch.randint(1, 99, (3, length))
    mask = torch.ones_like(ids)
    for row, pad in enumerate((0, 4, 11)):
        mask[row, :pad] = 0
    if name == "bert":
        mask = mask.flip(1)
    return torch.where(mask.bool(), ids, 0), mask


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name, padding, monkeypatch):
    ours, eager, wide = models(name, "flashtile", "eager", "oracle")
    wide.double()
    ids, mask = padded(name)
    # A pad's own output is nobody's business, and a label judges the output before it.
    judged = mask.bool() & mask.bool().roll(1, 1) if padding and name in DECODERS else mask.bool()
    inputs = {"input_ids": ids, "labels": torch.where(judged, ids, -100)}
    if padding:
        inputs["attention_mask"] = mask
    calls = []
    attention = flashtile.transformers.attention
    monkeypatch.setattr(flashtile.transformers, "attention", lambda *a, **k: (calls.append(1), attention(*a, **k))[1])
    results = []
    for model in (ours, eager, wide):
        result = model(**inputs)
        result.loss.backward()
        grad = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
        seen = mask.bool() if padding else torch.ones_like(mask).bool()
        results.append((result.logits[seen].detach().double(), grad))
    assert len(calls) == 2  # layers
    for got, usual, reference in zip(*results):
        allowed = 2 * (usual - reference).abs().max() + 2 * torch.finfo(torch.float32).eps * reference.abs().max()
        assert (got - reference).abs().max() <= allowed


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_generation_gives_the_same_tokens(name, cache):
    ours, eager = models(name, "flashtile", "eager")
    ids, mask = padded(name, 12)
    tokens = [model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, disable_compile=True,
                             cache_implementation=cache if cache == "static" else None) for model in (ours, eager)]
    assert tokens[0].shape[1] == 24 and torch.equal(*tokens)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_packed_sequences(name):
    """Sequences in one row, told apart by their positions; the logits are those of each sequence alone."""
    ours, eager = models(name, "flashtile", "eager")
    ids, lengths = torch.randint(1, 99, (1, 30)), (9, 14, 7)
    cu = torch.tensor((0, *lengths)).cumsum(0).int()
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    alone = torch.cat([eager(part).logits for part in ids.split(lengths, 1)], 1)
    by_position = ours(ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(by_position, alone, atol=1e-5, rtol=1e-4)
    by_lengths = ours(ids, position_ids=positions, use_cache=False, cu_seq_lens_q=cu, cu_seq_lens_k=cu, max_length_q=14,
                      max_length_k=14).logits
    torch.testing.assert_close(by_lengths, alone, atol=1e-5, rtol=1e-4)


def test_attention_dropout_in_training():
    model = transformers.LlamaForCausalLM(config("llama"))
    model.set_attn_implementation("flashtile")
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    ids, _ = padded("llama")
    first, second = (model.train()(ids).logits for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (model.eval()(ids).logits for _ in range(2))
    assert torch.equal(first, second)


def test_what_is_missing_is_named():
    q = torch.zeros(1, 1, 1, 8)
    with pytest.raises(NotImplementedError, match="sinks"):
        flashtile.transformers.attention_forward(torch.nn.Module(), q, q, q, None, s_aux=torch.zeros(1))
