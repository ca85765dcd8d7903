#!/usr/bin/env bash
# sbatch --nodes=4 benchmarks/cluster/slurm.sh digits --seeds 5 --budget 10m --storage /shared/trials --out /shared/out
# from the checkout's root, with the environment active: a Ray cluster for as long as the job lasts, and the run on it.
# A lost node does not end the job, and a requeued job carries on where it was: the run's own --resume is always given.
#SBATCH --job-name=stn-tune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --time=12:00:00
set -euo pipefail

RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token
export RAY_TMPDIR="/tmp/stn-tune-$SLURM_JOB_ID" RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

exec srun --no-kill --kill-on-bad-exit=0 \
  ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus="$SLURM_CPUS_ON_NODE" --disable-usage-stats -- \
  python -m benchmarks run "$@" --address "$head:6379" --resume
