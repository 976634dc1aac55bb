"""flash_attn.layers: apply_rotary_emb lies in rotary."""
