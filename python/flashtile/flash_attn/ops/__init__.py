"""flash_attn.ops: of it triton.rotary."""
