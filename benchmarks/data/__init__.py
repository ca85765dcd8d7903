"""The benchmark's data: fetched once per machine, cached once per node, memory-mapped by every trial."""
