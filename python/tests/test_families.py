"""Every family of transformers, as a tiny model with random weights on a padded batch: what "flashtile" gives is what
"eager" gives, or the model is refused with the reason.

FLASHTILE_TEST_FAMILIES=all takes every family that can be made tiny (5 minutes), names separated by commas take those.
"""

import os

import needs
import pytest
import torch

needs.transformers()

import flashtile  # noqa: E402
import tiny_models as tiny  # noqa: E402

# Two layers in fp32 leave some hundreds of units in the last place, of the largest entry. A key too many or too few
# moves some entry by a hundredth of it or more.
ALLOWED = 1e-4

# Without "all": one of each kind of mask, cache, cross attention, bias, sink and own attention.
SOME = """
llama mistral gemma2 gemma3_text gpt2 gpt_neox qwen2 qwen3_moe phi3 opt cohere2 stablelm llama4_text gpt_oss modernbert
bert mpnet bloom mpt codegen xglm gpt_neox_japanese rembert roformer megatron-bert squeezebert convbert luke ibert
canine led mvp nystromformer openai-gpt deberta-v2 gpt_neo gptj falcon bark git t5 bart whisper deepseek_v3
deepseek_v32 vit
clip_vision_model siglip qwen2_vl qwen2_5_vl_vision wav2vec2 parakeet_encoder nemotron_asr_streaming_encoder resnet
mamba jamba bamba esm gemma4_text deepseek_v4 minimax_m3_vl_text mimo_v2_flash granite_speech splinter doge t5gemma
""".split()
ASKED = os.environ.get("FLASHTILE_TEST_FAMILIES", "")
FAMILIES = tiny.families() if ASKED == "all" else [name for name in ASKED.split(",") if name] or SOME


@pytest.fixture(scope="module", autouse=True)
def registered():
    flashtile.transformers.register()


@pytest.fixture(autouse=True)
def on_the_cpu(device):
    """These tests are about transformers' side, which does not depend on the device."""
    torch.set_default_device("cpu")


@pytest.fixture
def calls(monkeypatch):
    """A list that grows by one whenever flashtile's attention is called."""
    made, attention = [], flashtile.transformers.attention
    monkeypatch.setattr(flashtile.transformers, "attention", lambda *a, **k: (made.append(1), attention(*a, **k))[1])
    return made


def furthest(got, usual, given):
    """The largest difference over all outputs where there is no padding, as a share of the output's largest entry."""
    assert [name for name, _ in got] == [name for name, _ in usual]
    worst = 0.0
    for (name, ours), (_, reference) in zip(got, usual):
        seen = tiny.judged(given, ours.shape)
        if seen is not None:
            ours, reference = ours[seen], reference[seen]
        if reference.numel():
            assert torch.equal(torch.isfinite(ours), torch.isfinite(reference)), name
            ours, reference = (torch.where(torch.isfinite(x), x, 0) for x in (ours, reference))
            worst = max(worst, ((ours - reference).abs().max() / reference.abs().max().clamp_min(1e-6)).item())
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_right_or_refused(family, calls):
    try:
        usual = tiny.build(family, "eager")
        try:
            ours = tiny.build(family, "flashtile")
        except ValueError as error:
            assert "cannot have" in str(error), error
            print(f"refused: {error}")
            return
        given, reference = tiny.first_that_runs(usual)
        if any(value.isnan().any() for _, value in reference):  # eager's own, in rows that see no key
            reference = tiny.outputs(tiny.build(family, "sdpa"), given)
    except tiny.NotMade as why:
        pytest.skip(f"not made: {why}")
    ours.load_state_dict(usual.state_dict())
    off = furthest(tiny.outputs(ours, given), reference, given)
    print(f"off by {off:.1e}, {len(calls)} calls")
    assert off <= ALLOWED
    assert calls or not has_attention(ours), "the model went on with its own attention"


def has_attention(model):
    return any("Attention" in type(part).__name__ for part in model.modules())


def test_the_batches_are_padded():
    """Shows that the test above can fail: without the mask, eager attention itself is far off."""
    model = tiny.build("bert", "eager")
    given, reference = tiny.first_that_runs(model)
    unpadded = {**given, "attention_mask": torch.ones_like(given["attention_mask"])}
    assert furthest(tiny.outputs(model, unpadded), reference, given) > 100 * ALLOWED
