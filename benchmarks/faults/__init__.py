"""Faults: real processes, nodes, disks and files that fail, and what an experiment loses by it.

An experiment is one self-tuned training of a tiny network. A case survives if, resumed where that is needed, it is
complete, all its losses are bit for bit those of an undisturbed training, and no process is left behind.
"""
