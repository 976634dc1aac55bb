"""flash_attn.ops.triton: of it rotary, without Triton."""
