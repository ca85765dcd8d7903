"""Ray Tune's side: trainables, STNSearch, and what they leave in configs, checkpoints and results."""
