"""flash_attn.utils: of it distributed and benchmark."""
