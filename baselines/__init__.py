"""What self-tuning networks are compared with."""
