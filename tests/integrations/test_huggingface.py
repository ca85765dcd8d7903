"""Transformers' Trainer, self-tuned: steps, files, exact resume, logs, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import tune

import stn_tune as stn
from stn_tune.errors import CheckpointError
from stn_tune.nn.response import self_tuning_of

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from stn_tune.integrations.huggingface import SelfTuningMixin, SelfTuningTrainer  # noqa: E402

WORDS, TIME, WIDTH, CLASSES = 17, 8, 16, 3
GPT2_NAMES = {"*attn_dropout": "attention", "*": "other"}


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.disable_progress_bar()
    before = transformers.logging.get_verbosity()
    yield
    transformers.logging.set_verbosity(before)


def gpt2(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "n_positions": TIME, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens, **options))


def bert() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 16, "max_position_embeddings": TIME}
    config = transformers.BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_labels=CLASSES)
    return transformers.BertForSequenceClassification(config)


def words(n: int, seed: int) -> list[dict[str, Any]]:
    """Each word follows from the one before, so there is something to learn."""
    start = torch.randint(0, WORDS, (n,), generator=torch.Generator().manual_seed(seed))
    rows = (start[:, None] + 3 * torch.arange(TIME)) % WORDS
    return [{"input_ids": row, "labels": row.clone()} for row in rows]


def sentences(n: int, seed: int) -> list[dict[str, Any]]:
    rows = torch.randint(0, WORDS, (n, TIME), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row[0] % CLASSES} for row in rows]


FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in FIELDS else "gradient_checkpointing"
"""What older versions of Transformers call it."""


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    defaults = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "learning_rate": 5e-3,
        "logging_steps": 4,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return TrainingArguments(str(folder), **(defaults | options))


def make(folder: Path, model=None, data=words, kind=SelfTuningTrainer, names=None, args=None, **options: Any):
    model = gpt2() if model is None else model
    space, bind = stn.dropouts(model, names or {"*": "dropout"})
    defaults = {"hyper": stn.Hyper(space), "bind": bind, "tuning_dataset": data(20, 1), "hyper_lr": 0.1}
    datasets = {"train_dataset": data(24, 0), "eval_dataset": data(16, 2)}
    return kind(model=model, args=arguments(folder, **(args or {})), **(datasets | defaults | options))


def state(trainer) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trainer.model.state_dict().items() if isinstance(v, torch.Tensor)}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


class Interrupted(Exception):
    pass


class Stop(TrainerCallback):  # type: ignore[misc]
    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Interrupted


MODELS = {"gpt2": (gpt2, words, AutoModelForCausalLM), "bert": (bert, sentences, AutoModelForSequenceClassification)}


@pytest.mark.parametrize("name", MODELS)
class TestBothModels:
    def test_lambda_moves_after_every_t_train_optimizer_steps(self, name, tmp_path):
        model, data, _ = MODELS[name]
        trainer = make(tmp_path, model(), data, train_steps=3, valid_steps=2)
        plain = {k: v.clone() for k, v in trainer.model.state_dict().items() if k.startswith(("transformer", "bert"))}
        trainer.train()
        assert trainer.state.global_step == trainer.tuner.weight_steps == 12
        assert trainer.tuner.schedule.steps == [0, 3, 6, 9, 12]
        assert len(set(trainer.tuner.schedule.values["dropout"])) == 5
        assert trainer.tuner.hyper_optimizer.state[trainer.hyper.lam]["step"] == 8, "T_valid steps each time"
        now = trainer.model.state_dict()
        assert any(not torch.equal(value, now[key]) for key, value in plain.items())
        rate = trainer.tuner.metrics()["hp/dropout"]
        rates = {m.p for m in trainer.model.modules() if isinstance(m, nn.Dropout)}
        assert rates == {rate}, "outside of steps the modules hold plain numbers"

    def test_what_is_saved_is_a_plain_model(self, name, tmp_path):
        model, data, auto = MODELS[name]
        trainer = make(tmp_path, model(), data, args={"save_strategy": "steps", "save_steps": 5})
        trainer.train()
        trainer.save_model(str(tmp_path / "out"))
        trainer.model.save_pretrained(str(tmp_path / "direct"))
        expected = set(load_file(_saved_plain(model(), tmp_path)))
        for folder in ("out", "direct", "checkpoint-5", "checkpoint-12"):
            assert set(load_file(tmp_path / folder / "model.safetensors")) == expected
        loaded, info = auto.from_pretrained(str(tmp_path / "out"), output_loading_info=True)
        assert not any(info.values())
        assert self_tuning_of(loaded) is None
        batch = {k: torch.stack([row[k] for row in data(4, 5)]) for k in ("input_ids", "labels")}
        with torch.no_grad():
            assert torch.equal(loaded.eval()(**batch).logits, trainer.model.eval()(**batch).logits)
        rates = {m.p for m in loaded.modules() if isinstance(m, nn.Dropout)}
        assert rates == {0.1}, "the config keeps the rates that it was made with"

    @pytest.mark.parametrize("algorithm", ["stn", pytest.param("delta", marks=pytest.mark.slow)])
    def test_resumed_training_is_the_undisturbed_one_bit_for_bit(self, name, algorithm, tmp_path, caplog):
        model, data, _ = MODELS[name]
        options = {"algorithm": algorithm, "train_steps": 2, "args": {"save_strategy": "steps", "save_steps": 5}}
        whole = make(tmp_path / "a", model(), data, **options)
        whole.train()
        half = make(tmp_path / "b", model(), data, callbacks=[Stop(7)], **options)
        with pytest.raises(Interrupted):
            half.train()
        resumed = make(tmp_path / "b", model(), data, **options)
        with caplog.at_level(logging.WARNING):
            transformers.logging.enable_propagation()
            resumed.train(resume_from_checkpoint=True)
            transformers.logging.disable_propagation()
        assert "_stn" not in caplog.text
        assert_same(state(whole), state(resumed))
        assert whole.tuner.schedule == resumed.tuner.schedule
        for one in ("hyper_optimizer", "scale_optimizer", "optimizer"):
            a, b = (getattr(t.tuner, one).state_dict() for t in (whole, resumed))
            assert str(a) == str(b)
        logged = [
            [row for row in t.state.log_history if row["step"] > 8 and "train_runtime" not in row]
            for t in (whole, resumed)
        ]
        assert logged[0] == logged[1]
        assert logged[0]


def _saved_plain(model: Any, folder: Path) -> Path:
    model.save_pretrained(str(folder / "plain"))
    return folder / "plain" / "model.safetensors"


class TestSteps:
    def test_a_trainer_is_the_pieces_by_hand(self, tmp_path):
        """Trainer(SGD, no clipping, constant rate) against SelfTuner's own steps, on the same batches and draws."""
        trainer = make(
            tmp_path,
            gpt2(),
            args={
                "max_grad_norm": 0.0,
                "lr_scheduler_type": "constant",
                "num_train_epochs": 1,
                "optim": "sgd",
                "learning_rate": 0.1,
            },
            train_steps=2,
        )
        model = copy.deepcopy(trainer.model)
        hyper = self_tuning_of(model).hyper
        seen = Recorder()
        trainer.add_callback(seen)
        seen.watch(trainer)
        trainer.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        tuner = stn.SelfTuner(model.train(), hyper, optimizer, train_steps=2, hyper_lr=0.1)
        torch.set_rng_state(seen.start)
        for kind, batch in seen.batches:
            step = tuner.train_step if kind == "train" else tuner.valid_step
            step(lambda m, b, hp: m(**b).loss, batch)
        assert [kind for kind, _ in seen.batches] == ["train", "train", "valid"] * 3
        for key, value in state(trainer).items():
            torch.testing.assert_close(value, model.state_dict()[key], rtol=1e-4, atol=1e-6, msg=key)

    def test_accumulation_counts_optimizer_steps(self, tmp_path):
        args = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 2, "num_train_epochs": 2}
        trainer = make(tmp_path, args=args, train_steps=2)
        passes = []
        trainer.accelerator.backward = _counted(trainer.accelerator.backward, passes)
        trainer.train()
        assert trainer.tuner.weight_steps == trainer.state.global_step == 8
        assert len(passes) == 24
        assert trainer.tuner.schedule.steps == [0, 2, 4, 6, 8]

    def test_delta_trains_the_responses_in_passes_of_their_own(self, tmp_path):
        trainer = make(tmp_path, algorithm="delta", response_every=3, args={"num_train_epochs": 1})
        passes = []
        trainer.accelerator.backward = _counted(trainer.accelerator.backward, passes)
        before = state(trainer)
        trainer.train()
        assert len(passes) == 6 + 2
        after = state(trainer)
        assert not torch.equal(before[key := next(k for k in before if k.endswith(".V"))], after[key])

    def test_warm_up(self, tmp_path):
        trainer = make(tmp_path, train_steps=2, warmup_steps=7)
        trainer.train()
        assert trainer.tuner.schedule.steps == [0, 8, 10, 12]

    @pytest.mark.parametrize(
        "args",
        [
            {CHECKPOINTING: True},
            {"label_smoothing_factor": 0.1},
            {"max_grad_norm": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 3, "weight_decay": 0.1},
            {"optim": "sgd"},
            {"dataloader_drop_last": True, "train_sampling_strategy": "sequential"},
        ],
        ids=lambda args: next(iter(args)),
    )
    def test_arguments_of_the_trainer(self, args, tmp_path):
        trainer = make(tmp_path, args=args)
        trainer.train()
        assert len(set(trainer.tuner.schedule.values["dropout"])) > 1
        assert all(torch.isfinite(value).all() for value in state(trainer).values())

    def test_gradient_checkpointing_changes_nothing(self, tmp_path):
        states = []
        for on in (False, True):
            trainer = make(tmp_path, args={CHECKPOINTING: on, "optim": "sgd", "learning_rate": 0.1})
            trainer.train()
            states.append(state(trainer))
        for key, value in states[0].items():
            torch.testing.assert_close(value, states[1][key], rtol=1e-4, atol=1e-6, msg=key)

    def test_bfloat16(self, tmp_path):
        try:
            torch.ones(8, 8, dtype=torch.bfloat16) @ torch.ones(8, 8, dtype=torch.bfloat16)
        except RuntimeError as error:
            pytest.skip(f"no bfloat16 here: {error}")
        trainer = make(tmp_path, args={"bf16": True})
        trainer.train()
        assert len(set(trainer.tuner.schedule.values["dropout"])) > 1
        assert trainer.hyper.lam.dtype == torch.float32

    def test_responses_do_not_decay(self, tmp_path):
        trainer = make(tmp_path, args={"weight_decay": 0.1})
        trainer.create_optimizer()
        responses = {id(p) for p in self_tuning_of(trainer.model).parameters()}
        decayed, others = ({id(p) for p in group["params"]} for group in trainer.optimizer.param_groups)
        assert decayed
        assert not decayed & responses
        assert responses <= others

    def test_a_loss_with_a_hyperparameter_of_its_own_in_a_subclass(self, tmp_path):
        class Mine(SelfTuningMixin, Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
                if model.training:
                    loss = loss + stn.nn.l2(model, self.hyper.current["decay"])
                return (loss, outputs) if return_outputs else loss

        hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1e-1)})
        trainer = make(tmp_path, kind=Mine, hyper=hyper, bind=None)
        trainer.train()
        assert len(set(trainer.tuner.schedule.values["decay"])) > 1

    def test_a_hyperparameter_that_nothing_reads_is_an_error(self, tmp_path):
        hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1e-1)})
        with pytest.raises(stn.UnusedError, match="decay: read by neither"):
            make(tmp_path, hyper=hyper, bind=None).train()

    def test_seq2seq_trainer(self, tmp_path):
        class Mine(SelfTuningMixin, transformers.Seq2SeqTrainer):
            pass

        sizes = {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))
        space, bind = stn.dropouts(model, {"*": "dropout"})
        args = transformers.Seq2SeqTrainingArguments(
            str(tmp_path), max_steps=8, report_to=[], use_cpu=True, disable_tqdm=True, predict_with_generate=True,
            generation_max_length=4, save_strategy="no", per_device_train_batch_size=4,
        )  # fmt: skip
        data = {"train_dataset": words(24, 0), "eval_dataset": words(8, 2), "tuning_dataset": words(12, 1)}
        trainer = Mine(model, args, hyper=stn.Hyper(space), bind=bind, hyper_lr=0.1, **data)
        trainer.train()
        assert trainer.tuner.schedule.steps == [0, 4, 8]
        assert trainer.predict(words(8, 3)).predictions.shape[0] == 8

    def test_training_twice_goes_on(self, tmp_path):
        trainer = make(tmp_path, args={"max_steps": 4})
        trainer.train()
        trainer.train()
        assert trainer.tuner.weight_steps == 8
        assert trainer.tuner.schedule.steps == [0, 4, 8]


class Recorder(TrainerCallback):  # type: ignore[misc]
    """The batches of both kinds of steps, and the state of the generator when they begin."""

    def __init__(self):
        self.batches, self.start = [], None

    def watch(self, trainer):
        compute_loss = trainer.compute_loss

        def watched(model, inputs, *more, **keywords):
            if self.start is None:
                self.start = self.before
            batch = {**inputs, "num_items_in_batch": keywords["num_items_in_batch"]}
            self.batches.append(("train" if model.training else "valid", batch))
            return compute_loss(model, inputs, *more, **keywords)

        trainer.compute_loss = watched

    def on_step_begin(self, *_, **__):
        if self.start is None:
            self.before = torch.get_rng_state()


def _counted(backward, passes):
    def counted(loss, **keywords):
        passes.append(1)
        return backward(loss, **keywords)

    return counted


class TestCheckpoints:
    def test_lambda_of_the_checkpoint_wins(self, tmp_path):
        trainer = make(tmp_path, args={"save_strategy": "steps", "save_steps": 12})
        trainer.train()
        space, bind = stn.dropouts(gpt2(), {"*": "dropout"})
        other = make(tmp_path, hyper=stn.Hyper(space, init={"dropout": 0.7}), bind=bind)
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
        assert other.tuner.metrics() == trainer.tuner.metrics()

    def test_in_a_later_pass_with_a_collator_that_draws(self, tmp_path):
        """The position in the tuning data, and what the collator draws for them, are put back.

        (The Trainer fetches training batches ahead of the step that is saved: what is drawn for them is not put back.)
        """

        def collate(rows):
            batch = {k: torch.stack([row[k] for row in rows]) for k in ("input_ids", "labels")}
            if "noisy" in rows[0]:
                batch["input_ids"] = torch.where(torch.rand(batch["labels"].shape) < 0.2, 0, batch["input_ids"])
            return batch

        options = {
            "data_collator": collate, "train_steps": 1,
            "tuning_dataset": [{**row, "noisy": True} for row in words(10, 1)],
            "args": {"save_strategy": "steps", "save_steps": 5, "remove_unused_columns": False},
        }  # fmt: skip
        whole = make(tmp_path / "a", **options)
        whole.train()
        with pytest.raises(Interrupted):
            make(tmp_path / "b", callbacks=[Stop(8)], **options).train()
        resumed = make(tmp_path / "b", **options)
        resumed.train(resume_from_checkpoint=True)
        assert_same(state(whole), state(resumed))
        assert whole._tuning_batches.passes == resumed._tuning_batches.passes == 3

    def test_the_file_of_our_own_is_plain_data(self, tmp_path):
        make(tmp_path, args={"save_strategy": "steps", "save_steps": 12}).train()
        folder = tmp_path / "checkpoint-12" / "stn_tune"
        assert [path.name for path in folder.iterdir()] == ["state.pt"], "nothing partial is left"
        saved = torch.load(folder / "state.pt", weights_only=True)
        assert all(key.startswith("_stn.") for key in saved["model"])
        assert "model" not in saved["tuner"]

    def test_a_checkpoint_of_a_plain_trainer(self, tmp_path):
        args = {"save_strategy": "steps", "save_steps": 12}
        Trainer(gpt2(), arguments(tmp_path, **args), train_dataset=words(24, 0)).train()
        with pytest.raises(CheckpointError, match=r"stn_tune/state.pt does not exist") as error:
            make(tmp_path).train(resume_from_checkpoint=True)
        one_line(error)

    @pytest.mark.parametrize("save_only_model", [False, True])
    def test_the_best_model_comes_with_its_lambda(self, save_only_model, tmp_path):
        losses = iter([3.0, 1.0, 2.0])
        trainer = make(
            tmp_path,
            train_steps=1,
            compute_metrics=lambda _: {"score": next(losses)},
            args={
                "eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4,
                "load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": False,
                "save_only_model": save_only_model,
            },
        )  # fmt: skip
        trainer.train()
        assert trainer.state.best_model_checkpoint.endswith("checkpoint-8")
        at = {row["step"]: row for row in trainer.state.log_history if "loss" in row}
        assert trainer.tuner.metrics()["hp/dropout"] == at[8]["hp/dropout"] != at[12]["hp/dropout"]
        saved = load_file(tmp_path / "checkpoint-8" / "model.safetensors")
        now = trainer.model.state_dict()
        assert all(torch.equal(value, now[key]) for key, value in saved.items())
        assert {m.p for m in trainer.model.modules() if isinstance(m, nn.Dropout)} == {at[8]["hp/dropout"]}

    @pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft reads it
    @pytest.mark.filterwarnings("ignore:Could not find a config file")  # peft 0.15, of a model without a name
    def test_peft_adapters(self, tmp_path):
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=2, target_modules=["c_attn"], lora_dropout=0.1, fan_in_fan_out=True)

        def adapted():
            return peft.get_peft_model(gpt2(), config)

        options = {"names": {"*lora_dropout*": "dropout"}, "args": {"save_strategy": "steps", "save_steps": 5}}
        whole = make(tmp_path / "a", adapted(), **options)
        whole.train()
        keys = load_file(tmp_path / "a" / "checkpoint-5" / "adapter_model.safetensors")
        assert keys
        assert not [key for key in keys if "_stn" in key]
        with pytest.raises(Interrupted):
            make(tmp_path / "b", adapted(), callbacks=[Stop(7)], **options).train()
        resumed = make(tmp_path / "b", adapted(), **options)
        resumed.train(resume_from_checkpoint=True)
        assert_same(state(whole), state(resumed))


class TestEvaluation:
    def test_evaluate_and_predict_use_the_plain_model_at_lambda(self, tmp_path):
        trainer = make(
            tmp_path,
            compute_metrics=lambda p: {"hit": float((p.predictions[:, :-1].argmax(-1) == p.label_ids[:, 1:]).mean())},
        )
        trainer.train()
        trainer.save_model(str(tmp_path / "out"))
        plain = AutoModelForCausalLM.from_pretrained(str(tmp_path / "out"))
        other = Trainer(plain, arguments(tmp_path), eval_dataset=words(16, 2), compute_metrics=trainer.compute_metrics)
        timed = ("runtime", "per_second", "epoch", "model_preparation_time")
        mine, theirs = ({k: v for k, v in t.evaluate().items() if not k.endswith(timed)} for t in (trainer, other))
        assert mine == theirs
        assert {"eval_loss", "eval_hit"} <= set(mine)
        rows = words(8, 3)
        assert (trainer.predict(rows).predictions == other.predict(rows).predictions).all()


class TestLogs:
    def test_values_and_scales_with_every_training_loss(self, tmp_path):
        rows = []

        class Mine(TrainerCallback):
            def on_log(self, args, state, control, logs=None, **_):
                rows.append((state.global_step, dict(logs)))

        trainer = make(tmp_path, names=GPT2_NAMES, callbacks=[Mine()], args={"eval_strategy": "epoch"})
        trainer.train()
        schedule = trainer.tuner.schedule
        training = [(step, logs) for step, logs in rows if "loss" in logs]
        assert [step for step, _ in training] == [4, 8, 12]
        for step, logs in training:
            for name in ("attention", "other"):
                assert logs[f"hp/{name}"] == schedule.at(step=step)[name]
                assert logs[f"scale/{name}"] > 0
        history = [row for row in trainer.state.log_history if "hp/other" in row]
        assert [row["step"] for row in history] == [4, 8, 12]
        json.dumps(trainer.state.log_history)

    def test_tensorboard(self, tmp_path, monkeypatch):
        tensorboardX = pytest.importorskip("tensorboardX")
        from transformers.integrations import TensorBoardCallback

        monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "runs"))
        seen = []
        add = tensorboardX.SummaryWriter.add_scalar
        monkeypatch.setattr(
            tensorboardX.SummaryWriter,
            "add_scalar",
            lambda w, tag, v, s=None: (seen.append((tag, s)), add(w, tag, v, s)),
        )
        make(tmp_path, callbacks=[TensorBoardCallback()]).train()
        assert [(tag, step) for tag, step in seen if "dropout" in tag][:2] == [
            ("train/hp/dropout", 4), ("train/scale/dropout", 4),
        ]  # fmt: skip
        assert list((tmp_path / "runs").iterdir())


class TestMisuse:
    def test_no_tuning_data(self, tmp_path):
        with pytest.raises(ValueError, match="tuning_dataset is missing") as error:
            make(tmp_path, tuning_dataset=None)
        one_line(error)

    def test_tuned_on_the_training_data(self, tmp_path):
        data = words(24, 0)
        with pytest.raises(ValueError, match="tuning_dataset is train_dataset") as error:
            make(tmp_path, train_dataset=data, tuning_dataset=data)
        one_line(error)

    def test_a_model_that_is_wrapped(self, tmp_path):
        model = gpt2()
        space, bind = stn.dropouts(model, {"*": "dropout"})
        with pytest.raises(ValueError, match=r"wrapped by DataParallel: give model\.module") as error:
            make(tmp_path, nn.DataParallel(model), hyper=stn.Hyper(space), bind=bind)
        one_line(error)

    def test_several_gpus_in_one_process(self, tmp_path):
        args = arguments(tmp_path)
        assert args.n_gpu <= 1
        args._n_gpu = 2
        model = gpt2()
        space, bind = stn.dropouts(model, {"*": "dropout"})
        with pytest.raises(ValueError, match="DataParallel would copy the model to 2 GPUs") as error:
            SelfTuningTrainer(model, args, hyper=stn.Hyper(space), bind=bind, tuning_dataset=words(4, 0))
        one_line(error)

    @pytest.mark.parametrize(
        ("name", "value"), [("deepspeed", {"zero": 3}), ("fsdp", True), ("parallelism_config", object())]
    )
    def test_sharding(self, name, value, tmp_path):
        args = arguments(tmp_path)
        setattr(args, name, value)
        model = gpt2()
        space, bind = stn.dropouts(model, {"*": "dropout"})
        with pytest.raises(ValueError, match=rf"TrainingArguments\({name}=\.\.\.\): it shards") as error:
            SelfTuningTrainer(model, args, hyper=stn.Hyper(space), bind=bind, tuning_dataset=words(4, 0))
        one_line(error)

    def test_reentrant_checkpointing(self, tmp_path):
        args = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": True}}
        with pytest.raises(ValueError, match="use_reentrant=True") as error:
            make(tmp_path, args=args)
        one_line(error)

    def test_model_init(self, tmp_path):
        space, bind = stn.dropouts(gpt2(), {"*": "dropout"})
        with pytest.raises(ValueError, match="model_init is not supported") as error:
            SelfTuningTrainer(
                model_init=gpt2, args=arguments(tmp_path), hyper=stn.Hyper(space), bind=bind, tuning_dataset=words(4, 0)
            )
        one_line(error)

    def test_options(self, tmp_path):
        with pytest.raises(ValueError, match="hyper_lr is -1"):
            make(tmp_path, hyper_lr=-1)
        with pytest.raises(TypeError, match="response_every"):
            make(tmp_path, response_every=2)
        with pytest.raises(TypeError, match="scale is no option of a tuner: give it to Hyper"):
            make(tmp_path, scale=0.1)
        with pytest.raises(ValueError, match="linearised is True") as error:
            make(tmp_path, algorithm="delta", linearised=True)
        one_line(error)
        with pytest.raises(TypeError, match="hyper_rate"):
            make(tmp_path, hyper_rate=0.1)


class TestOwnOptimizer:
    def test_built_before_self_tune(self, tmp_path):
        model = gpt2()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        with pytest.raises(ValueError, match=r"does not move the response of .*: build it after self_tune") as error:
            make(tmp_path, model, optimizers=(optimizer, None))
        one_line(error)

    def test_built_after_self_tune(self, tmp_path):
        model = gpt2()
        space, bind = stn.dropouts(model, {"*": "dropout"})
        hyper = stn.Hyper(space)
        stn.self_tune(model, hyper, bind=bind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
        trainer = make(tmp_path, model, hyper=hyper, bind=None, optimizers=(optimizer, schedule))
        trainer.train()
        assert trainer.tuner.optimizer is optimizer
        assert trainer.tuner.weight_steps == 12

    def test_bind_belongs_to_self_tune_then(self, tmp_path):
        model = gpt2()
        space, bind = stn.dropouts(model, {"*": "dropout"})
        hyper = stn.Hyper(space)
        stn.self_tune(model, hyper, bind=bind)
        with pytest.raises(ValueError, match="bind: the model is self-tuned already") as error:
            make(tmp_path, model, hyper=hyper, bind=bind)
        one_line(error)
