"""The runner: experiments at equal budgets, on this machine or a cluster, resumable."""
