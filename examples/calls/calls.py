"""An example of every public name of the Python package, each a function by the name's path. The reference shows them
(tools/write_reference, which fails where a name has none), and the tests run them. Each stands by itself; what it says of
its results is asserted.

    python examples/calls/calls.py        runs all, but for those whose framework is not installed
"""

# ruff: noqa: I001 (an example imports what it uses, in one line)
import sys
import traceback

SKIPS = ("jax", "flax", "ml_dtypes", "transformers")  # what an example may need that need not be here


def flashtile_attention():
    import math, torch, flashtile
    q = torch.randn(2, 256, 8, 64, requires_grad=True)            # (batch, seqlen, heads, head_dim)
    k, v = torch.randn(2, 2, 256, 2, 64, requires_grad=True)      # two heads of keys, for four of queries each
    out, lse = flashtile.attention(q, k, v, causal=True, window=(64, 0), return_lse=True)
    out.sum().backward()
    assert out.shape == q.shape and lse.shape == (2, 8, 256)
    score = (q[0, 0, 0] @ k[0, 0, 0]) / math.sqrt(64)             # the first query sees the first key alone
    assert torch.allclose(lse[0, 0, 0], score, atol=1e-5) and torch.allclose(out[:, 0, :4], v[:, 0, :1], atol=1e-6)


def flashtile_append_kv():
    import torch, flashtile
    k_cache, v_cache = torch.zeros(2, 2, 512, 8, 64)              # room for 512 tokens of each of two sequences
    lengths = torch.tensor([0, 300])                              # which have so many
    k, v = torch.randn(2, 2, 1, 8, 64)                            # a new one of each
    flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=lengths)
    assert torch.equal(v_cache[1, 300], v[1, 0]) and v_cache[1, 299].abs().sum() == 0


def flashtile_Append():
    import torch, flashtile
    k_cache, v_cache = torch.zeros(2, 2, 512, 8, 64)
    lengths = torch.tensor([0, 300], dtype=torch.int32)           # before the call
    q, k, v = torch.randn(3, 2, 1, 8, 64)
    out = flashtile.attention(q, k_cache, v_cache, causal=True, seqused_k=lengths, append=flashtile.Append(k, v))
    assert torch.equal(out[0], v[0]) and torch.equal(k_cache[1, 300], k[1, 0])


def flashtile_quantize():
    import torch, flashtile
    q, k, v = torch.randn(3, 1, 256, 4, 64)
    q8, q_scale = flashtile.quantize(q, block=64, hadamard=7)     # q and k by the same M: q M (k M)^T is q k^T
    k8, k_scale = flashtile.quantize(k, block=64, hadamard=7)
    v8, v_scale = flashtile.quantize(v, block=64)
    out = flashtile.attention(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, scale_block=64,
                              out_dtype=torch.bfloat16)
    assert k8.dtype == torch.float8_e4m3fn and k_scale.shape == (1, 4, 4)   # (batch, heads, blocks of 64 rows)
    assert (out.float() - flashtile.attention(q, k, v)).abs().max() < 0.1


def flashtile_dequantize():
    import torch, flashtile
    x = torch.randn(1, 256, 4, 64)
    again = flashtile.dequantize(*flashtile.quantize(x, block=128), block=128)
    assert ((again - x).abs() <= x.abs() / 16 + 0.01).all()       # three bits of mantissa


def flashtile_BlockLists():
    import torch, flashtile
    q, k, v = torch.randn(3, 1, 256, 2, 64)
    counts = torch.tensor([[[1, 2]]], dtype=torch.int32)          # the first 128 queries see one block of keys
    indices = torch.tensor([[[[0, 0], [1, 0]]]], dtype=torch.int32)  # what lies past a count is not read
    lists = flashtile.BlockLists(counts, indices, block_size=(128, 128))
    out = flashtile.attention(q, k, v, block_lists=lists)
    assert torch.allclose(out[:, :128], flashtile.attention(q[:, :128], k[:, :128], v[:, :128]), atol=1e-5)


def flashtile_merge():
    import torch, flashtile
    q, k, v = torch.randn(3, 1, 64, 4, 32)
    halves = [flashtile.attention(q, k[:, at], v[:, at], return_lse=True) for at in (slice(32), slice(32, None))]
    out, lse = flashtile.merge(*zip(*halves))                     # of all keys
    whole, whole_lse = flashtile.attention(q, k, v, return_lse=True)
    assert torch.allclose(out, whole, atol=1e-5) and torch.allclose(lse, whole_lse, atol=1e-5)


def flashtile_warm_up():
    import flashtile
    shapes = [(8, 4096, 16, 128), [(8, 1, 32, 128), (8, 8192, 8, 128)]]   # training; decoding on 8 heads of keys
    flashtile.warm_up(shapes, causal=True, device="cpu")          # "cuda": compiles and loads, in parallel


def flashtile_scaled_dot_product_attention():
    import torch, flashtile
    q, k, v = torch.randn(3, 2, 8, 64, 32)                        # PyTorch's layout: (batch, heads, seqlen, head_dim)
    out = flashtile.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-5)


def flashtile_sdpa():
    import torch, flashtile
    layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    x = torch.randn(2, 10, 64, requires_grad=True)
    with flashtile.sdpa():                                        # whatever calls PyTorch's function meanwhile
        out = layer(x)
    assert "cpu" in flashtile.last_run() and torch.allclose(out, layer(x), atol=1e-4)


def flashtile_flex_attention():
    import torch, flashtile
    from torch.nn.attention.flex_attention import create_block_mask
    q, k, v = torch.randn(3, 1, 2, 128, 32)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    out = flashtile.flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j), block_mask=mask)
    distance = torch.arange(128)[:, None] - torch.arange(128)
    bias = torch.where(distance >= 0, -0.1 * distance, -torch.inf)
    assert torch.allclose(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, bias), atol=1e-5)


def flashtile_register_flash_attention_impl():
    import torch, flashtile
    flashtile.register_flash_attention_impl()
    attention = torch.nn.attention
    if hasattr(attention, "activate_flash_attention_impl"):       # in newer PyTorches
        attention.activate_flash_attention_impl("flashtile")
        q, k, v = torch.randn(3, 2, 8, 64, 32)
        with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, k, v)
        assert flashtile.last_run().startswith("cpu")
        attention.restore_flash_attention_impl()


def flashtile_last_run():
    import torch, flashtile
    x = torch.randn(1, 64, 2, 32)
    flashtile.attention(x, x, x)
    print(flashtile.last_run())                                   # as: cpu avx512 forward, 2 threads
    assert flashtile.last_run().startswith("cpu ")


def flashtile_describe():
    import flashtile
    found = flashtile.describe()
    print(found["version"], found["cpu"]["isa"]["bf16"], found["cuda"]["driver"]["found"])
    assert found["cpu"]["threads"] >= 1


def flashtile_info():
    import flashtile
    flashtile.info()                                              # prints what describe() returns


def flashtile_install_as_flash_attn():
    import torch, flashtile
    flashtile.install_as_flash_attn()                             # from now on `import flash_attn` finds flashtile
    from flash_attn import flash_attn_func
    q, k, v = torch.randn(3, 2, 64, 8, 32)
    assert torch.equal(flash_attn_func(q, k, v), flashtile.attention(q, k, v))


# --- flashtile.numpy ---


def flashtile_numpy_attention():
    import numpy as np, flashtile.numpy
    q, k, v = np.random.randn(3, 2, 256, 8, 64).astype(np.float32)
    out, lse = flashtile.numpy.attention(q, k, v, causal=True, return_lse=True)
    assert out.shape == q.shape and np.allclose(out[:, 0], v[:, 0], atol=1e-6)    # the first query sees one key


def flashtile_numpy_attention_backward():
    import numpy as np, flashtile.numpy
    q, k, v = np.random.randn(3, 2, 256, 8, 64).astype(np.float32)
    out, lse = flashtile.numpy.attention(q, k, v, return_lse=True)
    dq, dk, dv = flashtile.numpy.attention_backward(np.ones_like(out), q, k, v, out, lse)
    assert np.allclose(dv.sum(axis=1), 256, rtol=1e-4)            # each of 256 queries gives away 1


def flashtile_numpy_append_kv():
    import numpy as np, flashtile.numpy
    k_cache, v_cache = np.zeros((2, 1, 16, 2, 32), np.float32)
    k, v = np.random.randn(2, 1, 3, 2, 32).astype(np.float32)
    flashtile.numpy.append_kv(k_cache, v_cache, k, v, cache_seqlens=np.array([5], np.int32))
    assert (v_cache[0, 5:8] == v[0]).all()


def flashtile_numpy_quantize():
    import ml_dtypes, numpy as np, flashtile.numpy as fn
    x = np.random.default_rng(0).standard_normal((1, 256, 4, 64), np.float32)
    x8, scale = fn.quantize(x, block=64)                          # a scale for each 64 rows of a head
    assert x8.dtype == ml_dtypes.float8_e4m3fn and scale.shape == (1, 4, 4)


def flashtile_numpy_dequantize():
    import numpy as np, flashtile.numpy as fn
    x = np.random.default_rng(0).standard_normal((1, 256, 4, 64), np.float32)
    again = fn.dequantize(*fn.quantize(x, block=128), block=128)
    assert (np.abs(again - x) <= np.abs(x) / 16 + 0.01).all()     # three bits of mantissa


def flashtile_numpy_merge():
    import numpy as np, flashtile.numpy
    q, k, v = np.random.randn(3, 1, 64, 4, 32).astype(np.float32)
    halves = [flashtile.numpy.attention(q, k[:, at], v[:, at], return_lse=True) for at in (slice(32), slice(32, None))]
    out, lse = flashtile.numpy.merge(*zip(*halves))
    assert np.allclose(out, flashtile.numpy.attention(q, k, v), atol=1e-5)


def flashtile_numpy_Options():
    import numpy as np, flashtile.numpy
    options: flashtile.numpy.Options = {"causal": True, "softcap": 30.0}          # for type checkers
    x = np.random.randn(1, 64, 2, 32).astype(np.float32)
    assert np.allclose(flashtile.numpy.attention(x, x, x, **options)[:, 0], x[:, 0], atol=1e-6)


def flashtile_numpy_ForwardOptions():
    import numpy as np, flashtile.numpy
    options: flashtile.numpy.ForwardOptions = {"seqused_k": np.array([1], np.int32)}     # forward takes more than both
    x = np.random.randn(1, 64, 2, 32).astype(np.float32)
    assert np.allclose(flashtile.numpy.attention(x, x, x, **options), x[:, :1], atol=1e-6)     # all see one key


# --- flashtile.jax ---


def flashtile_jax_attention():
    import jax, jax.numpy as jnp, flashtile.jax as fj
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 256, 8, 64))
    out = jax.jit(lambda *of: fj.attention(*of, causal=True))(q, k, v)
    dq, dk, dv = jax.grad(lambda *of: fj.attention(*of).sum(), (0, 1, 2))(q, k, v)
    assert jnp.allclose(out[:, 0], v[:, 0], atol=1e-6) and jnp.allclose(dv.sum(1), 256, rtol=1e-4)


def flashtile_jax_dot_product_attention():
    import jax, jax.numpy as jnp, flashtile.jax as fj
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 64, 4, 32))
    out = fj.dot_product_attention(q, k, v, is_causal=True)       # jax.nn's signature
    assert jnp.allclose(out, jax.nn.dot_product_attention(q, k, v, is_causal=True), atol=1e-2)


def flashtile_jax_flax_attention():
    import jax, jax.numpy as jnp, flashtile.jax as fj
    from flax import nnx
    layer = nnx.MultiHeadAttention(4, 64, attention_fn=fj.flax_attention, decode=False, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 16, 64))
    assert layer(x).shape == x.shape and bool(jnp.isfinite(layer(x)).all())


# --- flashtile.transformers ---


def flashtile_transformers_register():
    import torch, flashtile, transformers
    flashtile.transformers.register()                             # then "flashtile" is an attn_implementation
    config = transformers.LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="flashtile")
    logits = model(torch.randint(100, (1, 16))).logits
    assert logits.shape == (1, 16, 100) and flashtile.last_run().startswith("cpu ")


def flashtile_transformers_attention_forward():
    import torch, flashtile
    module = torch.nn.Module()                                    # the model's layer, which says what it is
    module.is_causal, module.training = True, False
    q, k, v = torch.randn(3, 1, 4, 16, 32)                        # (batch, heads, seqlen, head_dim)
    out, _ = flashtile.transformers.attention_forward(module, q, k, v, None)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(out.transpose(1, 2), expected, atol=1e-5)


def flashtile_transformers_attention_mask():
    import flashtile
    from transformers import masking_utils
    flashtile.transformers.register()                             # models then call it by itself
    assert masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["flashtile"] is flashtile.transformers.attention_mask


# --- flashtile.flash_attn ---


def flashtile_flash_attn_flash_attn_func():
    import torch, flashtile.flash_attn as fa
    q, k, v = torch.randn(3, 2, 64, 8, 32, dtype=torch.bfloat16)
    out = fa.flash_attn_func(q, k, v, causal=True, window_size=(16, 0))
    assert torch.equal(out[:, 0], v[:, 0])


def flashtile_flash_attn_flash_attn_qkvpacked_func():
    import torch, flashtile.flash_attn as fa
    qkv = torch.randn(2, 64, 3, 8, 32)
    assert torch.equal(fa.flash_attn_qkvpacked_func(qkv), fa.flash_attn_func(*qkv.unbind(2)))


def flashtile_flash_attn_flash_attn_kvpacked_func():
    import torch, flashtile.flash_attn as fa
    q, kv = torch.randn(2, 64, 8, 32), torch.randn(2, 64, 2, 2, 32)
    assert torch.equal(fa.flash_attn_kvpacked_func(q, kv), fa.flash_attn_func(q, *kv.unbind(2)))


def flashtile_flash_attn_flash_attn_varlen_func():
    import torch, flashtile.flash_attn as fa
    q, k, v = torch.randn(3, 48, 8, 32)                           # two sequences, of 16 and of 32 tokens
    cu_seqlens = torch.tensor([0, 16, 48], dtype=torch.int32)
    out = fa.flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 32, 32, causal=True)
    assert torch.allclose(out[16], v[16], atol=1e-6)              # the second's first token


def flashtile_flash_attn_flash_attn_varlen_qkvpacked_func():
    import torch, flashtile.flash_attn as fa
    qkv, cu_seqlens = torch.randn(48, 3, 8, 32), torch.tensor([0, 16, 48], dtype=torch.int32)
    out = fa.flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, 32, causal=True)
    assert torch.allclose(out[16], qkv[16, 2], atol=1e-6)


def flashtile_flash_attn_flash_attn_varlen_kvpacked_func():
    import torch, flashtile.flash_attn as fa
    q, kv, cu_seqlens = torch.randn(48, 8, 32), torch.randn(48, 2, 8, 32), torch.tensor([0, 16, 48], dtype=torch.int32)
    out = fa.flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens, cu_seqlens, 32, 32, causal=True)
    assert torch.allclose(out[16], kv[16, 1], atol=1e-6)


def flashtile_flash_attn_flash_attn_with_kvcache():
    import torch, flashtile.flash_attn as fa
    k_cache, v_cache = torch.zeros(2, 2, 512, 8, 64)
    lengths = torch.tensor([0, 300], dtype=torch.int32)
    q, k, v = torch.randn(3, 2, 1, 8, 64)
    out = fa.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
    assert torch.equal(out[0], v[0]) and torch.equal(k_cache[1, 300], k[1, 0])


def flashtile_flash_attn_install_as_flash_attn():
    import flashtile.flash_attn
    flashtile.flash_attn.install_as_flash_attn()
    import flash_attn
    assert flash_attn.flash_attn_func is flashtile.flash_attn.flash_attn_func


# --- flashtile.flash_attn_3 ---


def flashtile_flash_attn_3_flash_attn_func():
    import torch, flashtile.flash_attn_3 as fa3
    q, k, v = torch.randn(3, 2, 64, 8, 32)
    assert torch.allclose(fa3.flash_attn_func(q, k, v, causal=True)[:, 0], v[:, 0], atol=1e-6)


def flashtile_flash_attn_3_flash_attn_varlen_func():
    import torch, flashtile.flash_attn_3 as fa3
    q, k, v = torch.randn(3, 48, 8, 32)
    cu_seqlens = torch.tensor([0, 16, 48], dtype=torch.int32)
    out = fa3.flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 32, 32, causal=True)
    assert torch.allclose(out[16], v[16], atol=1e-6)


def flashtile_flash_attn_3_flash_attn_qkvpacked_func():
    import torch, flashtile.flash_attn_3 as fa3
    qkv = torch.randn(2, 64, 3, 8, 32)
    assert torch.equal(fa3.flash_attn_qkvpacked_func(qkv), fa3.flash_attn_func(*qkv.unbind(2)))


def flashtile_flash_attn_3_flash_attn_combine():
    import torch, flashtile, flashtile.flash_attn_3 as fa3
    q, k, v = torch.randn(3, 1, 64, 4, 32)
    halves = [flashtile.attention(q, k[:, at], v[:, at], return_lse=True) for at in (slice(32), slice(32, None))]
    outs, lses = (torch.stack(of) for of in zip(*halves))
    out, lse = fa3.flash_attn_combine(outs, lses.transpose(2, 3))
    assert torch.allclose(out, flashtile.attention(q, k, v), atol=1e-5)


def flashtile_flash_attn_3_flash_attn_with_kvcache():
    import torch, flashtile.flash_attn_3 as fa3
    k_cache, v_cache = torch.zeros(2, 2, 512, 8, 64)
    lengths = torch.tensor([0, 300], dtype=torch.int32)
    q, k, v = torch.randn(3, 2, 1, 8, 64)
    out = fa3.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
    assert torch.equal(out[0], v[0]) and torch.equal(k_cache[1, 300], k[1, 0])


# --- flashtile.distributed: each rank runs the same; here there is one ---


def flashtile_distributed_context_parallel_attention():
    import torch, flashtile, flashtile.distributed as fd
    q, k, v = (fd.shard(x) for x in torch.randn(3, 1, 256, 8, 64))    # this rank's part of each sequence
    out = fd.context_parallel_attention(q, k, v, causal=True)
    assert torch.allclose(fd.unshard(out), flashtile.attention(q, k, v, causal=True), atol=1e-5)   # of one rank


def flashtile_distributed_shard():
    import torch, flashtile.distributed as fd
    x = torch.randn(1, 256, 8, 64)
    assert torch.equal(fd.shard(x, layout="zigzag"), x)           # of more ranks each has a piece from either end


def flashtile_distributed_unshard():
    import torch, flashtile.distributed as fd
    x = torch.randn(1, 256, 8, 64)
    assert torch.equal(fd.unshard(fd.shard(x)), x)


def flashtile_distributed_measure_link():
    import torch.distributed as dist, flashtile.distributed as fd
    if dist.get_world_size() > 1:                                 # a link has two ends
        print(fd.measure_link(megabytes=1, repeats=2))            # a Machine


def flashtile_distributed_Machine():
    import flashtile.distributed as fd
    slow = fd.Machine(link=2.5e10)                                # bytes a second; the rest as on an H200
    work = fd.Work(seqlen=65536, heads=32, kv_heads=8, head_dim=128, head_dim_v=128)
    assert fd.predict("ring", work, 8, slow).seconds > fd.predict("ring", work, 8).seconds


def flashtile_distributed_Work():
    import flashtile.distributed as fd
    work = fd.Work(seqlen=65536, heads=32, kv_heads=8, head_dim=128, head_dim_v=128, seen=1.0)    # no mask
    half = work._replace(seen=0.5)                                # causal
    assert fd.predict("ring", half, 8).compute < fd.predict("ring", work, 8).compute


def flashtile_distributed_Cost():
    import flashtile.distributed as fd
    cost = fd.predict("ulysses", fd.Work(65536, 32, 8, 128, 128), 8)
    print(f"{cost.seconds:.4f} s, of which waiting {cost.waiting:.4f}")
    assert isinstance(cost, fd.Cost) and cost.seconds >= cost.compute


def flashtile_distributed_predict():
    import flashtile.distributed as fd
    work = fd.Work(seqlen=65536, heads=32, kv_heads=8, head_dim=128, head_dim_v=128)
    cost = fd.predict("ring", work, ranks=8)
    flops = 3.5 * 4 * 32 * 65536**2 * 128 * work.seen             # of forward and backward
    assert abs(cost.compute / (flops / 8 / fd.Machine().flops) - 1) < 1e-12


def flashtile_distributed_choose():
    import flashtile.distributed as fd
    work = fd.Work(seqlen=65536, heads=32, kv_heads=8, head_dim=128, head_dim_v=128)
    assert fd.choose(work, ranks=8) == "ulysses"                  # each rank has one of the eight heads of keys


def flashtile_distributed_seen_share():
    import flashtile.distributed as fd
    assert abs(fd.seen_share(100, (-1, 0)) - 0.505) < 1e-12       # causal: 5050 of 10000 scores


def main():
    import tempfile
    import torch.distributed as dist
    examples = {name: value for name, value in globals().items() if name.startswith("flashtile_")}
    skipped = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        for name, example in examples.items():
            try:
                example()
            except ModuleNotFoundError as missing:
                if (missing.name or "").partition(".")[0] not in SKIPS:
                    raise
                skipped.append(f"{name} (no {missing.name})")
            except Exception:
                traceback.print_exc()
                sys.exit(f"{name} did not come out as it says")
        dist.destroy_process_group()
    print(f"{len(examples) - len(skipped)} examples came out as they say; skipped: {', '.join(skipped) or 'none'}")


if __name__ == "__main__":
    main()
