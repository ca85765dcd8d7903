"""Self-tuning inside other people's training loops: one thin, optional module each, imported only when asked for."""
