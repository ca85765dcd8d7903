"""A self-tuning network on scikit-learn's digits, in about a minute, with nothing to download."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table

import stn_tune as stn
from benchmarks.tasks import problem

SHOWN = {"conv2_dropout": "conv\ndropout", "fc1_dropout": "fc\ndropout", "cutout_length": "cutout\nlength"}
SHOWN |= {"input_scale": "input\nscale", "contrast": "contrast"}


def run(epochs: int, seed: int) -> None:
    """Trains, and shows a row for every fifth epoch."""
    torch.set_num_threads(1)
    console = Console()
    digits = problem("digits", "small")
    trainable = digits.self_tuned()(config={"seed": seed})
    console.print("[bold]A network that tunes its own regularisation[/] (scikit-learn's digits)\n")
    console.print(stn.describe(trainable._trainer.model), highlight=False)
    table = Table(caption="every row is the same network, a little later: there is no search")
    for column in ("epoch", "train\nloss", "valid\nloss", "test\nloss", *SHOWN.values()):
        table.add_column(column, justify="right")
    with Live(table, console=console, refresh_per_second=4):
        for epoch in range(1, epochs + 1):
            result = trainable.train()
            if epoch % 5 == 0 or epoch in (1, epochs):
                values = [result["train_loss"], result["val_loss"], result["test_loss"]]
                values += [result[f"hp/{name}"] for name in SHOWN]
                table.add_row(str(epoch), *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values))
    seconds = result["wall_s"]
    console.print(f"\n{epochs} epochs in {seconds:.0f} s; best validation loss {result['best_val_loss']:.3f}, ", end="")
    console.print(f"test loss there {result['test_loss']:.3f}. All {len(digits.space)} hyperparameters:")
    for name, column in trainable._trainer.schedule.values.items():
        console.print(f"  {name:15} {column[0]:6.3g} → {column[-1]:.3g}", highlight=False)
