"""Ways to train a task: self-tuned by one of ``registry.ALGORITHMS``, or at values somebody else chose (``fixed``)."""
