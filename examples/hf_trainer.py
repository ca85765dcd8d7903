"""Transformers' Trainer with a GPT-2 that tunes its own dropout rates: python examples/hf_trainer.py."""

import sys
from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import stn_tune as stn
from stn_tune.integrations.huggingface import SelfTuningTrainer


def datasets(length=32):
    text = "\n".join(topics.values()).encode("ascii", "replace")
    letters = torch.tensor(list(text))[: 1024 * length].view(-1, length)
    blocks = [{"input_ids": block, "labels": block} for block in letters[torch.randperm(1024)]]
    return blocks[:64], blocks[256:512], blocks[512:]


def main(folder="hf_trainer_output", epochs=60):
    torch.manual_seed(0)
    train, valid, test = datasets()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=4))
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        learning_rate=5e-3,
        eval_strategy="steps",
        eval_steps=40,
        logging_steps=40,
        save_steps=80,
        save_total_limit=2,
        report_to="none",
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    space, bind = stn.dropouts(model)
    tuning = {"hyper": stn.Hyper(space), "bind": bind, "tuning_dataset": valid, "hyper_lr": 0.05}
    trainer = SelfTuningTrainer(model=model, args=args, train_dataset=train, eval_dataset=valid, **tuning)
    trainer.train(resume_from_checkpoint="--resume" in sys.argv)
    trainer.save_model()
    print(f"test loss {trainer.evaluate(test)['eval_loss']:.4f}")
    return trainer


if __name__ == "__main__":
    main()
