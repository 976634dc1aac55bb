"""Models of transformers with random weights: "flashtile" beside "eager", judged by dense attention in fp64 (eager's
own softmax stays in fp32 whatever the model's dtype)."""

import logging

import needs
import pytest
import torch

transformers = needs.transformers()

import flashtile  # noqa: E402
from oracle import dense  # noqa: E402
from tiny_models import weighed  # noqa: E402

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
        return t.Gemma3TextConfig(**GQA, head_dim=256, sliding_window=8, layer_types=["sliding_attention",
                                                                                    "full_attention"])
    if name == "gpt2":
        return t.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=1,
                            eos_token_id=None, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    if name == "gpt_oss":
        return t.GptOssConfig(**GQA, head_dim=16, sliding_window=8, num_local_experts=2, num_experts_per_tok=1,
                              rope_parameters={"rope_type": "default", "rope_theta": 1e4},
                              experts_implementation="eager")  # the others have no fp64
    return t.BertConfig(**SMALL, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


NAME = "tiled_attention"
MODELS = ("llama", "mistral", "gemma2", "gemma3", "gpt2", "gpt_oss", "bert")
DECODERS = MODELS[:-1]


def oracle(module, query, key, value, attention_mask, scaling=None, softcap=None, s_aux=None, **_):
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    if s_aux is not None:
        return with_sinks(q, k, v, attention_mask, scaling, s_aux), None
    causal = attention_mask is None and module.is_causal and q.shape[1] > 1
    return dense(q, k, v, mask=attention_mask, causal=causal, scale=scaling, softcap=softcap or 0.0)[0], None


def with_sinks(q, k, v, mask, scale, s_aux):
    """A sink is like one more key whose value is zero and whose score is the sink."""
    if mask is None:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril()[None, None]
    k, v = (torch.nn.functional.pad(t, (0, 0, 0, 0, 1, 0)) for t in (k, v))
    bias = torch.nn.functional.pad(s_aux.reshape(1, -1, 1, 1).expand(-1, -1, q.shape[1], -1), (0, k.shape[1] - 1))
    return dense(q, k, v, mask=torch.nn.functional.pad(mask, (1, 0), value=True), bias=bias, scale=scale)[0]


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
    with pytest.raises(NotImplementedError, match="indices"):
        flashtile.transformers.attention_forward(torch.nn.Module(), q, q, q, None, indices=torch.zeros(1, 1, 1))


def test_the_name_is_one_that_transformers_does_not_take_for_flash_attn(tmp_path):
    """"flashtile" is accepted wherever a name can be given, and is not saved with the model."""
    model, = models("llama", "flashtile")
    assert "flash" not in NAME and model.config._attn_implementation == NAME
    assert transformers.LlamaConfig(**GQA, attn_implementation="flashtile")._attn_implementation == NAME
    model.set_attn_implementation("eager")
    model.set_attn_implementation("flashtile")
    assert model.config._attn_implementation == NAME
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="flashtile")
    assert loaded.config._attn_implementation == NAME
    ids, mask = padded("llama")
    torch.testing.assert_close(loaded(ids, attention_mask=mask).logits, model(ids, attention_mask=mask).logits)


def llava():
    vision = transformers.CLIPVisionConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=32,
                                           intermediate_size=48, patch_size=8)
    text = transformers.LlamaConfig(**GQA)
    return transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=7)


def test_parts_of_a_model_are_told_by_name():
    def told(model):
        return [c._attn_implementation for c in (model.config.text_config, model.config.vision_config)]

    kind = transformers.LlavaForConditionalGeneration
    assert told(kind._from_config(llava(), attn_implementation="flashtile")) == [NAME, NAME]
    model = kind._from_config(llava(), attn_implementation={"text_config": "flashtile", "vision_config": "eager"})
    assert told(model) == [NAME, "eager"]
    model.set_attn_implementation({"text_config": "sdpa", "vision_config": "flashtile"})
    assert told(model) == ["sdpa", NAME]


@pytest.mark.parametrize("kind, reason, allowed", [
    ("MPNet", "computes attention in code of its own", '"eager"'),
    ("GPTJ", "from a list of its own", '"eager"'),
    ("Falcon", "from a list of its own", '"sdpa" within flashtile.sdpa()'),
    ("Splinter", "declares that it works with its own attention only", '"eager"'),
    ("DeepseekV32", "its sparse attention hides keys", '"sdpa" within flashtile.sdpa()')])
@pytest.mark.parametrize("name", ["flashtile", NAME])
def test_models_that_would_go_wrong_are_refused(kind, reason, allowed, name):
    made, model = getattr(transformers, kind + "Config"), getattr(transformers, kind + "Model")
    with torch.device("meta"), pytest.raises(ValueError, match=f"{kind}Model cannot have: .*{reason}") as error:
        model._from_config(made(num_hidden_layers=1), attn_implementation=name)
    assert allowed in str(error.value)
    with torch.device("meta"):
        eager = model._from_config(made(num_hidden_layers=1), attn_implementation="eager")
    # Where transformers would log that the model goes on as it is.
    with pytest.raises(ValueError, match=f"{kind}Model cannot have: .*{reason}"):
        eager.set_attn_implementation(name)
    assert eager.config._attn_implementation == "eager"


def test_a_stranger_s_model_on_a_refused_one_is_refused():
    class Mine(transformers.MPNetModel):
        pass

    with torch.device("meta"), pytest.raises(ValueError, match="Mine cannot have"):
        Mine._from_config(transformers.MPNetConfig(num_hidden_layers=1), attn_implementation="flashtile")


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_attention_weights_are_refused(name):
    model, = models(name, "flashtile")
    ids, mask = padded(name)
    with pytest.raises(ValueError, match="output_attentions is True"):
        model(ids, attention_mask=mask, output_attentions=True)
    model, = models(name, "eager")
    model.config.output_attentions = True
    model.set_attn_implementation("flashtile")
    with pytest.raises(ValueError, match="output_attentions is True"):
        model(ids, attention_mask=mask)


@pytest.mark.parametrize("name,given,page_size", [
    ("llama", "flashtile", 4), ("llama", "paged|flashtile", 4), ("gemma3", "flashtile", 4), ("gemma3", "flashtile", 8),
    ("gpt_oss", "flashtile", 5), ("gpt_oss", "paged|flashtile", 4)])
def test_continuous_batching(name, given, page_size, monkeypatch):
    """Requests of different lengths on one paged cache, beside each one alone on eager attention. Full attention copies
    no old keys, and neither do windows where each request has one query and pages divide the window, of 8."""
    allocators = pytest.importorskip("transformers.generation.continuous_batching.cache_allocators",
                                     reason="this transformers, older than 5.23, configures batching otherwise")
    Full, Sliding = allocators.FullAttentionCacheAllocator, allocators.SlidingAttentionCacheAllocator
    copied = {Full: [], Sliding: []}  # of the calls of each that copied rows, how many queries each had

    def watched(kind, update):
        def watched_update(self, key, value, layer, read, write):
            if read.numel():
                copied[kind].append(key.shape[0])
            return update(self, key, value, layer, read, write)
        return watched_update

    for kind in copied:
        monkeypatch.setattr(kind, "update", watched(kind, kind.update))
    ours, eager = models(name, given, "eager")
    prompts = [list(range(1, 24)), [4, 5], list(range(30, 41))]  # longer and shorter than the window
    generation = transformers.GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = transformers.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=20, page_size=page_size)
    done = ours.generate_batch(inputs=prompts, generation_config=generation, continuous_batching_config=batching)
    got = sorted((tuple(request.prompt_ids), request.generated_tokens) for request in done.values())
    expected = sorted((tuple(prompt), eager.generate(torch.tensor([prompt]), generation_config=generation)[
        0, len(prompt):].tolist()) for prompt in prompts)
    assert got == expected
    assert not copied[Full]
    assert all(queries > len(prompts) for queries in copied[Sliding]) == (page_size != 5)


def test_layers_that_share_keys_see_the_last_queries_only():
    """Before these layers the model drops all queries whose logits are not wanted. Where it then gives no mask, the
    queries that are left are the last ones: causal attention is aligned bottom-right."""
    def made(name):
        values = transformers.Gemma4TextConfig(**GQA, head_dim=16, global_head_dim=16, num_kv_shared_layers=1,
                                               hidden_size_per_layer_input=8, vocab_size_per_layer_input=99,
                                               sliding_window=64, layer_types=2 * ["full_attention"])
        return weighed(transformers.Gemma4ForCausalLM._from_config(values, attn_implementation=name))

    ours, eager = made("flashtile"), made("eager")
    ids, _ = padded("llama")
    got, usual = (model(ids, logits_to_keep=3).logits for model in (ours, eager))
    torch.testing.assert_close(got, usual, atol=1e-5, rtol=1e-4)
    # And with a static cache, whose keys beyond the queries no query may see.
    got, usual = (model(ids, logits_to_keep=3, use_cache=True, past_key_values=transformers.StaticCache(
        config=model.config, max_cache_len=40)).logits for model in (ours, eager))
    torch.testing.assert_close(got, usual, atol=1e-5, rtol=1e-4)
