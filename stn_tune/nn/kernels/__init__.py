"""Hand-written gradients."""
