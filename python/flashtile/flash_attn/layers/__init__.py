"""flash_attn.layers: rotary position embedding lies in rotary."""
