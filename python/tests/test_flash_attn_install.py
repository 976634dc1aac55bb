"""install_as_flash_attn, each time in a process of its own, since modules stay imported."""

import subprocess
import sys

import needs


def run(program):
    done = subprocess.run([sys.executable, "-c", "import flashtile\nflashtile.install_as_flash_attn()\n" + program],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_imported():
    run("""
import flash_attn
from flash_attn import flash_attn_func, flash_attn_with_kvcache
from flash_attn.flash_attn_interface import (FlashAttnFunc, FlashAttnKVPackedFunc, FlashAttnQKVPackedFunc,
    FlashAttnVarlenFunc, FlashAttnVarlenKVPackedFunc, FlashAttnVarlenQKVPackedFunc, _flash_attn_backward,
    _flash_attn_forward, _flash_attn_varlen_backward, _flash_attn_varlen_forward, _wrapped_flash_attn_backward,
    _wrapped_flash_attn_forward, _wrapped_flash_attn_varlen_backward, _wrapped_flash_attn_varlen_forward,
    flash_attn_varlen_func, flash_attn_with_kvcache, maybe_contiguous)
from flash_attn.bert_padding import (index_first_axis, index_first_axis_residual, index_put_first_axis, pad_input,
    unpad_input, unpad_input_for_concatenated_sequences)
from flash_attn.layers.rotary import (RotaryEmbedding, apply_rotary_emb, apply_rotary_emb_func, apply_rotary_emb_kv_,
    apply_rotary_emb_qkv_)
from flash_attn.ops.triton.rotary import apply_rotary
from flash_attn.utils.benchmark import (benchmark_all, benchmark_backward, benchmark_combined, benchmark_forward,
    benchmark_fwd_bwd)
from flash_attn.utils.distributed import (all_gather, all_gather_raw, all_reduce, all_reduce_raw, reduce_scatter,
    reduce_scatter_raw)
import flash_attn_interface
from flash_attn_interface import flash_attn_combine, flash_attn_qkvpacked_func
assert flash_attn_func is flashtile.flash_attn.flash_attn_func and flash_attn.__version__.startswith("2.")
assert flash_attn_interface.flash_attn_func is not flash_attn_func
assert flash_attn_interface.flash_attn_with_kvcache is not flash_attn_with_kvcache
""")


MISSING = {
    "from flash_attn.cute import flash_attn_func": ("flash_attn.cute", "FlashAttention-4's interface"),
    "import flash_attn.ops.rms_norm": ("flash_attn.ops.rms_norm", "has attention and rotary embedding, not"),
    "from flash_attn.losses.cross_entropy import x": ("flash_attn.losses", "has attention and rotary embedding, not"),
    "from flash_attn.modules.mha import MHA": ("flash_attn.modules", "has attention and rotary embedding, not"),
    "from flash_attn.utils.generation import x": ("flash_attn.utils.generation", "has attention and rotary embedding"),
    "import flash_attn_2_cuda": ("flash_attn_2_cuda", "no module of flash-attn's kernels"),
    "from flash_attn import flash_attn_next_func": ("flash_attn.flash_attn_next_func", "2.8.3's interface"),
    "from flash_attn_interface import get_scheduler_metadata": ("flash_attn_interface.get_scheduler_metadata",
                                                                "not this part of FlashAttention-3's interface"),
}


def test_what_is_missing_says_why():
    """The import raises, so that callers can fall back; importlib.util.find_spec returns None."""
    run(f"""
import importlib.util
for statement, (name, reason) in {MISSING}.items():
    try:
        exec(statement)
    except ImportError as error:
        assert str(error).startswith("there is no " + name + ": ") and reason in str(error), (statement, error)
    else:
        raise AssertionError(statement)
import flash_attn, flash_attn_interface
assert not hasattr(flash_attn, "flash_attn_next_func")
assert not hasattr(flash_attn_interface, "get_scheduler_metadata")
assert importlib.util.find_spec("flash_attn.cute") is None and importlib.util.find_spec("flash_attn_2_cuda") is None
assert importlib.util.find_spec("flash_attn.bert_padding") is not None
""")


def test_the_distribution():
    run("""
from importlib import metadata
flashtile.install_as_flash_attn()  # twice is once
assert metadata.version("flash_attn") == metadata.version("flash-attn") == "2.8.3"
assert metadata.metadata("flash_attn")["Name"] == "flash_attn"
assert metadata.packages_distributions()["flash_attn"] == ["flash_attn"]
for name in ("flash_attn_3", "flash_attn_4", "no_such_thing"):
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        continue
    raise AssertionError(name)
assert metadata.version("pytest") and metadata.entry_points()
""")


def test_transformers_takes_it():
    """transformers accepts "flash_attention_2" where a GPU is there, though it has looked for flash-attn before. The
    program pretends that there is a GPU, and compares a model's forward, padded and not, with "eager"."""
    needs.transformers()
    program = """
import torch
import transformers
import transformers.modeling_flash_attention_utils as utils
from transformers.utils import import_utils
import flashtile
import_utils.is_torch_cuda_available = lambda: True
assert not import_utils.is_flash_attn_2_available()
flashtile.install_as_flash_attn()
assert import_utils.is_flash_attn_2_available() and import_utils.is_flash_attn_greater_or_equal("2.8.0")
assert not import_utils.is_flash_attn_3_available() and not import_utils.is_flash_attn_4_available()
functions, _ = utils.lazy_import_flash_attention("flash_attention_2")
assert functions[:2] == (flashtile.flash_attn.flash_attn_func, flashtile.flash_attn.flash_attn_varlen_func)

config = transformers.LlamaConfig(vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
tokens = torch.randint(1, 99, (2, 17))
mask = torch.ones_like(tokens)
mask[1, :5] = 0
with torch.no_grad():
    for given in (None, mask):
        results = []
        for attention in ("eager", "flash_attention_2"):
            model.config._attn_implementation = attention
            results.append(model(tokens, attention_mask=given).logits)
        seen = slice(None) if given is None else mask.bool()
        torch.testing.assert_close(results[1][seen], results[0][seen], atol=1e-5, rtol=1e-4)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
