"""Ways to train a task: self-tuned (``stn``), or at values that somebody else chose (``fixed``)."""
