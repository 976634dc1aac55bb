"""jax.nn.dot_product_attention on flashtile."""
def dot_product_attention(): pass
