"""The benchmark's data: downloads over bad lines, hostile files, caches shared by processes."""

from __future__ import annotations

import gc
import hashlib
import io
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from benchmarks.data import cache, cifar10, download, ptb
from benchmarks.data.cache import cached
from benchmarks.data.cifar10 import load_cifar10
from benchmarks.data.download import SOURCES, Patience, Source, data_dir, fetch
from benchmarks.data.ptb import build_corpus, load_ptb
from benchmarks.errors import DataError

ROOT = Path(__file__).parents[2]
HASTY = Patience(timeout=0.3, attempts=3, pause=0.01)
CONTENT = {"a.txt": bytes(range(256)) * 2000, "b.txt": b"short\n"}
HALF = 300_000


class Server(ThreadingHTTPServer):
    """Serves ``files``, well or badly: each request takes the first of ``faults`` that are left."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges = files, True
        self.faults: list[str | int] = []
        self.requests: list[tuple[str, str | None]] = []
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that went away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, name, span = self.server, self.path.lstrip("/"), self.headers["Range"]
        server.requests.append((name, span))
        fault = server.faults.pop(0) if server.faults else None
        if isinstance(fault, int) or name not in server.files:
            self.send_error(fault or 404)
            return
        body, start = server.files[name], int(span[6:-1]) if span and server.ranges else 0
        if start and start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            first = start + 1 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if fault != "no length":
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:HALF] if fault in ("break", "stall", "wait") else body[start:])
        if fault in ("stall", "wait"):
            server.arrived.set()
            server.go_on.wait(20)
        if fault == "wait":
            self.wfile.write(body[HALF:])

    def log_message(self, *arguments):
        """Quiet."""


@pytest.fixture
def server(monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    server = Server(dict(CONTENT))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join()


def sums(files):
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


@pytest.fixture
def source(server):
    return Source("texts", server.url, sums(CONTENT), "texts")


def folder_contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestDownload:
    def test_fetches_reports_and_then_does_nothing(self, server, source, tmp_path):
        steps = []
        assert fetch(source, tmp_path, report=lambda *step: steps.append(step)) == tmp_path / "texts"
        assert folder_contents(tmp_path / "texts") == CONTENT
        size = len(CONTENT["a.txt"])
        assert ("downloading a.txt", 0, size) in steps
        assert ("downloading a.txt", size, size) in steps
        steps.clear()
        fetch(source, tmp_path, report=lambda *step: steps.append(step))
        assert [step for step, _, _ in steps] == [f"texts is already complete in {tmp_path / 'texts'}"]
        assert len(server.requests) == 2

    def test_only_what_is_missing_is_fetched(self, server, source, tmp_path):
        fetch(source, tmp_path)
        (tmp_path / "texts/b.txt").unlink()
        fetch(source, tmp_path)
        assert [name for name, _ in server.requests] == ["a.txt", "b.txt", "b.txt"]

    def test_a_broken_connection_is_resumed(self, server, source, tmp_path):
        server.faults = ["break"]
        steps = []
        fetch(source, tmp_path, patience=HASTY, report=lambda step, done, total: steps.append(step))
        assert server.requests[:2] == [("a.txt", None), ("a.txt", f"bytes={HALF}-")]
        assert folder_contents(tmp_path / "texts") == CONTENT
        assert any(step.startswith("retrying a.txt: ") for step in steps)

    def test_a_broken_run_is_resumed_by_the_next(self, server, source, tmp_path):
        server.faults = ["break", 404]
        with pytest.raises(DataError, match="404"):
            fetch(source, tmp_path, patience=HASTY)
        assert folder_contents(tmp_path / "texts") == {"a.txt.part": CONTENT["a.txt"][:HALF]}
        fetch(source, tmp_path)
        assert server.requests[2] == ("a.txt", f"bytes={HALF}-")
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_breaks_that_bring_progress_do_not_count(self, server, source, tmp_path, monkeypatch):
        monkeypatch.setattr(Handler, "do_GET", _twenty_thousand_bytes_at_a_time)
        fetch(source, tmp_path, patience=replace(HASTY, attempts=1, pause=0))
        assert folder_contents(tmp_path / "texts") == CONTENT
        assert len(server.requests) > 20

    def test_starts_again_without_range_support(self, server, source, tmp_path):
        server.ranges, server.faults = False, ["break"]
        fetch(source, tmp_path, patience=HASTY)
        assert server.requests[1] == ("a.txt", f"bytes={HALF}-")
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_gives_up_where_every_start_breaks_off(self, server, source, tmp_path):
        server.ranges, server.faults = False, ["break"] * 9
        with pytest.raises(DataError, match="was lost after 300000 of 512000"):
            fetch(source, tmp_path, patience=HASTY)
        assert len(server.requests) == 4

    def test_a_wrong_range_is_not_appended(self, server, source, tmp_path):
        server.faults = ["break", "wrong range"]
        fetch(source, tmp_path, patience=HASTY)
        assert server.requests[2] == ("a.txt", None)
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_no_length(self, server, source, tmp_path):
        server.faults = ["no length"] * 2
        fetch(source, tmp_path)
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_a_stalled_server_is_left_and_resumed(self, server, source, tmp_path):
        server.faults = ["stall"]
        fetch(source, tmp_path, patience=HASTY)
        assert server.requests[1] == ("a.txt", f"bytes={HALF}-")
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_a_server_that_only_stalls_ends_in_an_error(self, server, source, tmp_path):
        server.files["a.txt"] = CONTENT["a.txt"][:HALF] + b"never sent"
        server.faults = ["stall"] * 9
        with pytest.raises(DataError, match="timed out"):
            fetch(source, tmp_path, patience=HASTY)

    def test_a_slow_server_is_borne_with(self, server, source, tmp_path):
        server.faults = ["wait"]
        threading.Timer(0.5, server.go_on.set).start()
        fetch(source, tmp_path, patience=Patience(timeout=5))
        assert server.requests == [("a.txt", None), ("b.txt", None)]

    @pytest.mark.parametrize("code", [429, 500, 503])
    def test_a_passing_server_error_is_retried(self, code, server, source, tmp_path):
        server.faults = [code, code]
        fetch(source, tmp_path, patience=HASTY)
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_404_is_not_retried(self, server, source, tmp_path):
        server.files.clear()
        with pytest.raises(DataError, match=r"a\.txt: HTTP Error 404"):
            fetch(source, tmp_path)
        assert len(server.requests) == 1

    def test_wrong_checksum(self, server, source, tmp_path):
        server.files["a.txt"] = b"<html>log in to the guest network</html>"
        with pytest.raises(DataError, match=r"a\.txt has MD5 .* the copy was deleted"):
            fetch(source, tmp_path)
        assert folder_contents(tmp_path / "texts") == {}
        fetch(source, tmp_path, verify=False)
        assert (tmp_path / "texts/a.txt").read_bytes() == server.files["a.txt"]

    @pytest.mark.parametrize("left_over", [b"from another file", b"too long" * 100_000])
    def test_a_foreign_part_is_fetched_anew(self, left_over, server, source, tmp_path):
        (tmp_path / "texts").mkdir()
        (tmp_path / "texts/a.txt.part").write_bytes(left_over)
        fetch(source, tmp_path, patience=HASTY)
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_present_files_with_another_sum_need_no_verify_and_are_never_touched(self, server, source, tmp_path):
        (tmp_path / "texts").mkdir()
        (tmp_path / "texts/a.txt").write_bytes(b"my own")
        with pytest.raises(DataError, match=r"texts/a\.txt has MD5 .*--no-verify"):
            fetch(source, tmp_path)
        fetch(source, tmp_path, verify=False)
        assert folder_contents(tmp_path / "texts") == {"a.txt": b"my own", "b.txt": CONTENT["b.txt"]}

    def test_offline_says_which_files_go_where(self, tmp_path):
        with pytest.raises(DataError) as caught:
            fetch("ptb", tmp_path, base_url="http://127.0.0.1:9", patience=HASTY)
        message = str(caught.value)
        assert "\n" not in message
        assert f"into {tmp_path / 'ptb'} " in message
        for split in ("train", "valid", "test"):
            assert f"ptb.{split}.txt (http://127.0.0.1:9/ptb.{split}.txt)" in message

    def test_unwritable_folder(self, source, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="cannot"):
            fetch(source, tmp_path / "file")

    def test_unknown_name(self, tmp_path):
        with pytest.raises(DataError, match="unknown data set 'mnist'; known: ptb, cifar10"):
            fetch("mnist", tmp_path)


def _twenty_thousand_bytes_at_a_time(handler):
    span = handler.headers["Range"]
    handler.server.requests.append((handler.path, span))
    body, start = handler.server.files[handler.path.lstrip("/")], int(span[6:-1]) if span else 0
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    handler.send_header("Content-Length", str(len(body) - start))
    handler.end_headers()
    handler.wfile.write(body[start : start + 20_000])


class TestTwoProcesses:
    """Another process is in the middle of the download when this one starts."""

    @pytest.fixture
    def other(self, server, source, tmp_path):
        server.faults = ["wait"]
        code = f"from benchmarks.data.download import *; fetch({source!r}, {str(tmp_path)!r})"
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
        assert server.arrived.wait(60)
        yield process
        process.kill()
        process.wait()

    def test_one_downloads_and_the_other_waits(self, server, source, tmp_path, other):
        steps = []

        def report(step, done, total):
            steps.append(step)
            server.go_on.set()

        fetch(source, tmp_path, report=report)
        assert other.wait(20) == 0
        assert steps == ["waiting for another process", f"texts is already complete in {tmp_path / 'texts'}"]
        assert server.requests == [("a.txt", None), ("b.txt", None)]
        assert folder_contents(tmp_path / "texts") == CONTENT

    def test_a_killed_one_is_succeeded(self, server, source, tmp_path, other):
        part = tmp_path / "texts/a.txt.part"
        while not part.exists() or not part.stat().st_size:
            time.sleep(0.01)
        fetch(source, tmp_path, report=lambda step, done, total: other.send_signal(signal.SIGKILL))
        assert other.wait(20) == -signal.SIGKILL
        assert server.requests[1][1].startswith("bytes=")
        assert [name for name, _ in server.requests] == ["a.txt", "a.txt", "b.txt"]
        assert folder_contents(tmp_path / "texts") == CONTENT


def batch(rows=4, seed=0, **changes):
    """A batch as Python 3 writes it for Python 2: protocol 2, latin1."""
    generator = np.random.default_rng(seed)
    return {
        "batch_label": "batch",
        "labels": generator.integers(0, 10, rows).tolist(),
        "data": generator.integers(0, 256, (rows, 3072), np.uint8),
        "filenames": [f"{i}.png" for i in range(rows)],
        **changes,
    }


def python2_string(value: bytes) -> bytes:
    short = len(value) < 256
    return (b"U" + bytes([len(value)]) if short else b"T" + len(value).to_bytes(4, "little")) + value


def python2_pickle(content) -> bytes:
    """A batch in the opcodes of the official files, whose strings are Python-2 strings."""
    rows = len(content["labels"])
    dtype = b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\x00K\x01\x87R(K\x03" + python2_string(b"|")
    dtype += b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2_string(b"b") + b"\x87R"
    array += b"(K\x01K" + bytes([rows]) + b"M\x00\x0c\x86" + dtype + b"\x89"
    array += python2_string(content["data"].tobytes()) + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in content["labels"]) + b"e"
    return b"\x80\x02}(" + python2_string(b"labels") + labels + python2_string(b"data") + array + b"u."


def write_cifar(data, rows=4):
    folder = data / "cifar-10-batches-py"
    folder.mkdir()
    contents = [batch(rows, seed) for seed in range(6)]
    for path, content in zip(SOURCES["cifar10"].files(data), contents, strict=True):
        path.write_bytes(python2_pickle(content))
    return contents


class TestCifar10:
    def test_images_and_labels(self, tmp_path):
        contents = write_cifar(tmp_path)
        for _ in range(2):
            images = load_cifar10(tmp_path)
            assert images.train_x.shape == (20, 3, 32, 32)
            assert images.train_x.dtype == images.test_x.dtype == torch.uint8
            assert images.train_y.dtype == images.test_y.dtype == torch.int64
            expected = np.concatenate([content["data"] for content in contents]).reshape(-1, 3, 32, 32)
            assert torch.cat([images.train_x, images.test_x]).numpy().tobytes() == expected.tobytes()
            assert images.train_y.tolist() + images.test_y.tolist() == [y for c in contents for y in c["labels"]]

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_a_batch_written_by_python_3(self, order, tmp_path):
        content = batch()
        path = tmp_path / "data_batch_1"
        path.write_bytes(pickle.dumps({**content, "data": np.array(content["data"], order=order)}, protocol=2))
        x, y = cifar10.read_batch(path)
        assert (x.reshape(4, -1) == content["data"]).all()
        assert y.tolist() == content["labels"]

    def test_a_batch_may_not_run_code(self, tmp_path):
        trace = tmp_path / "ran"
        attacks = [
            f"cos\nsystem\n(S'touch {trace}'\ntR.".encode(),
            f'cbuiltins\neval\n(S\'open("{trace}", "w")\'\ntR.'.encode(),
            f"cnumpy\nload\n(S'{trace}'\ntR.".encode(),
            b"cnumpy\nndarray.tofile\n.",
            b"\x80\x04\x8c\x06num\npy\x8c\x04load\x93.",
            b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",
            b"cnumpy\nndarray\n}(S'__init__'\nI1\nub.",
            b"cnumpy\nndarray\n(N}S'__init__'\nI1\nstb.",
        ]
        for attack in attacks:
            path = tmp_path / "data_batch_1"
            path.write_bytes(attack)
            with pytest.raises(DataError, match="data_batch_1 is not a CIFAR-10 batch") as caught:
                cifar10.read_batch(path)
            assert "\n" not in str(caught.value)
        assert not trace.exists()
        path.write_bytes(python2_pickle(batch()))
        assert len(cifar10.read_batch(path)[0]) == 4

    damages: ClassVar = {
        "empty": b"",
        "text": b"<html></html>",
        "truncated": python2_pickle(batch())[:5000],
        "no dictionary": pickle.dumps([1], protocol=2),
        "no data": pickle.dumps({"labels": [1]}, protocol=2),
        "flat data": pickle.dumps(batch(data=np.zeros(4 * 3072, np.uint8)), protocol=2),
        "too narrow": pickle.dumps(batch(data=np.zeros((4, 1024), np.uint8)), protocol=2),
        "no rows": pickle.dumps(batch(rows=0), protocol=2),
        "floats": pickle.dumps(batch(data=np.zeros((4, 3072), np.float32)), protocol=2),
        "objects": pickle.dumps(batch(data=np.zeros((4, 3072), object)), protocol=2),
        "list": pickle.dumps(batch(data=[[0] * 3072] * 4), protocol=2),
        "few labels": pickle.dumps(batch(labels=[1, 2]), protocol=2),
        "label 10": pickle.dumps(batch(labels=[1, 2, 3, 10]), protocol=2),
        "text labels": pickle.dumps(batch(labels=["1", "2", "3", "4"]), protocol=2),
        "re-encoded": python2_pickle(batch()).decode("latin1").encode(),
        "short content": python2_pickle(batch()).replace(b"K\x04M\x00\x0c\x86", b"K\x05M\x00\x0c\x86"),
    }

    @pytest.mark.parametrize("damage", damages)
    def test_damaged_batches_are_named(self, damage, tmp_path):
        write_cifar(tmp_path)
        (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(self.damages[damage])
        with pytest.raises(DataError, match="data_batch_3 is not a CIFAR-10 batch") as caught:
            load_cifar10(tmp_path)
        assert "\n" not in str(caught.value)

    def test_batches_of_different_lengths(self, tmp_path):
        write_cifar(tmp_path)
        (tmp_path / "cifar-10-batches-py/data_batch_4").write_bytes(python2_pickle(batch(3)))
        with pytest.raises(DataError, match="data_batch_4 has 3 rows, but data_batch_1 has 4"):
            load_cifar10(tmp_path)

    def test_missing(self, tmp_path):
        write_cifar(tmp_path)
        (tmp_path / "cifar-10-batches-py/test_batch").unlink()
        with pytest.raises(DataError, match=f"test_batch missing.*benchmarks data cifar10 --data-dir {tmp_path}"):
            load_cifar10(tmp_path)


def tar_of(*members):
    """A .tar.gz of (name, content) or ready TarInfo members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


GOOD = [(f"cifar-10-batches-py/{name}", name.encode()) for name in (*SOURCES["cifar10"].members, "batches.meta")]
FOLDER = special("cifar-10-batches-py", tarfile.DIRTYPE)


class TestArchive:
    def source(self, server, content):
        server.files["x.tar.gz"] = content
        return replace(SOURCES["cifar10"], url=server.url, md5=sums({"x.tar.gz": content}))

    def test_unpacked_and_removed(self, server, tmp_path):
        source = self.source(server, tar_of(FOLDER, *GOOD))
        assert fetch(source, tmp_path) == tmp_path / "cifar-10-batches-py"
        assert folder_contents(tmp_path / "cifar-10-batches-py")["data_batch_2"] == b"data_batch_2"
        assert sorted(path.name for path in tmp_path.iterdir()) == [".cifar10.lock", "cifar-10-batches-py"]
        fetch(source, tmp_path)
        assert len(server.requests) == 1

    def test_an_archive_put_there_is_used_and_kept(self, server, tmp_path):
        source = self.source(server, tar_of(*GOOD))
        (tmp_path / "x.tar.gz").write_bytes(server.files["x.tar.gz"])
        fetch(source, tmp_path)
        assert server.requests == []
        assert (tmp_path / "x.tar.gz").exists()

    def test_an_archive_put_there_is_verified(self, server, tmp_path):
        source = self.source(server, tar_of(*GOOD))
        (tmp_path / "x.tar.gz").write_bytes(tar_of(FOLDER, *GOOD))
        with pytest.raises(DataError, match=r"x\.tar\.gz has MD5"):
            fetch(source, tmp_path)
        fetch(source, tmp_path, verify=False)

    def test_an_unpacked_folder_is_enough(self, server, tmp_path):
        write_cifar(tmp_path)
        fetch("cifar10", tmp_path, base_url=server.url)
        assert server.requests == []

    hostile: ClassVar = {
        "parent": ("../evil", b"x"),
        "parent inside": ("cifar-10-batches-py/../../evil", b"x"),
        "dots": ("cifar-10-batches-py/..", b"x"),
        "absolute": ("/tmp/evil", b"x"),
        "elsewhere": ("other/evil", b"x"),
        "below": ("cifar-10-batches-py/sub/evil", b"x"),
        "top": ("evil", b"x"),
        "symlink": special("cifar-10-batches-py/evil", tarfile.SYMTYPE, "/etc/passwd"),
        "folder link": special("cifar-10-batches-py", tarfile.SYMTYPE, "/tmp"),
        "hard link": special("cifar-10-batches-py/evil", tarfile.LNKTYPE, "cifar-10-batches-py/data_batch_1"),
        "device": special("cifar-10-batches-py/evil", tarfile.CHRTYPE),
        "fifo": special("cifar-10-batches-py/evil", tarfile.FIFOTYPE),
        "folder": special("../evil", tarfile.DIRTYPE),
    }

    @pytest.mark.parametrize("kind", hostile)
    def test_hostile_members(self, kind, server, tmp_path):
        data = tmp_path / "data"
        source = self.source(server, tar_of(*GOOD, self.hostile[kind]))
        with pytest.raises(DataError, match="is not a plain file in cifar-10-batches-py/"):
            fetch(source, data)
        assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
            ["data", ".cifar10.lock", "x.tar.gz", "cifar-10-batches-py"]
        )

    whole = tar_of(*((name, os.urandom(2000)) for name, _ in GOOD))
    damages: ClassVar = {"empty": b"", "text": b"<html></html>" * 99, "truncated": whole[: len(whole) // 2]}

    @pytest.mark.parametrize("damage", damages)
    def test_damaged_archives(self, damage, server, tmp_path):
        with pytest.raises(DataError, match=r"cannot unpack .*x\.tar\.gz"):
            fetch(self.source(server, self.damages[damage]), tmp_path)
        assert folder_contents(tmp_path / "cifar-10-batches-py") == {}

    def test_incomplete_archives(self, server, tmp_path):
        with pytest.raises(DataError, match=r"does not contain data_batch_1, .*test_batch"):
            fetch(self.source(server, tar_of(FOLDER)), tmp_path)


def write_ptb(data, train=" a b a \n c <unk> \n", valid="a c\n", test="b zebra\n"):
    (data / "ptb").mkdir(exist_ok=True)
    for split, text in (("train", train), ("valid", valid), ("test", test)):
        (data / f"ptb/ptb.{split}.txt").write_text(text)


def spelled(corpus, split):
    return " ".join(corpus.words[i] for i in getattr(corpus, split).tolist())


class TestPtb:
    def test_splits(self, tmp_path):
        write_ptb(tmp_path)
        for _ in range(2):
            corpus = load_ptb(tmp_path)
            assert corpus.train.dtype == torch.int64
            assert spelled(corpus, "train") == "a b a <eos> c <unk> <eos>"
            assert spelled(corpus, "valid") == "a c <eos>"
            assert spelled(corpus, "test") == "b <unk> <eos>"
            assert corpus.words == ["a", "<eos>", "b", "c", "<unk>"]

    def test_a_blank_line_is_a_sentence_end_and_a_missing_newline_is_one(self, tmp_path):
        write_ptb(tmp_path, train="a\r\n\nb")
        assert spelled(load_ptb(tmp_path), "train") == "a <eos> <eos> b <eos>"

    def test_cuts(self, tmp_path):
        write_ptb(tmp_path)
        corpus = load_ptb(tmp_path, tokens=3, valid_tokens=1, test_tokens=99)
        assert spelled(corpus, "train") == "a b a"
        assert spelled(corpus, "valid") == "a"
        assert spelled(corpus, "test") == "b <unk> <eos>"
        assert len(load_ptb(tmp_path).train) == 7
        with pytest.raises(DataError, match="0 valid tokens"):
            load_ptb(tmp_path, valid_tokens=0)

    def test_vocabulary_keeps_the_frequent_and_the_two_marks(self):
        text = ["x", "y", "y", "z", "z", "z", "w", "<eos>"]
        assert build_corpus(text, ["w"], ["z"], 4).words == ["z", "y", "<eos>", "<unk>"]
        assert build_corpus(text, ["w"], ["z"], 5).words == ["z", "y", "x", "<eos>", "<unk>"]
        assert build_corpus(text, ["w"], ["z"], 2).words == ["<eos>", "<unk>"]
        assert build_corpus(text, ["w"], ["z"], 99).words == ["z", "y", "x", "w", "<eos>", "<unk>"]
        corpus = build_corpus(iter(text), iter(["w", "nowhere"]), iter(["z"]), 4)
        assert spelled(corpus, "train") == "<unk> y y z z z <unk> <eos>"
        assert spelled(corpus, "valid") == "<unk> <unk>"

    def test_bad_requests(self):
        with pytest.raises(DataError, match="vocabulary of 1 is too small"):
            build_corpus(["a"], ["a"], ["a"], 1)
        with pytest.raises(DataError, match="no valid words"):
            build_corpus(["a"], [], ["a"])

    @pytest.mark.parametrize(
        "content", [b"", b" \n\n", b"caf\xe9 au lait\n", "words\n".encode("utf-16"), "words\n".encode("utf-16-le")]
    )
    def test_damaged_files_are_named(self, content, tmp_path):
        write_ptb(tmp_path)
        (tmp_path / "ptb/ptb.valid.txt").write_bytes(content)
        with pytest.raises(DataError, match=r"ptb\.valid\.txt"):
            load_ptb(tmp_path)

    def test_missing(self, tmp_path):
        with pytest.raises(DataError) as caught:
            load_ptb(tmp_path)
        assert str(caught.value) == (
            f"ptb.train.txt, ptb.valid.txt, ptb.test.txt missing in {tmp_path}/ptb: "
            f"run `python -m benchmarks data ptb --data-dir {tmp_path}`"
        )


class TestCache:
    def test_loaded_without_reading_the_sources(self, tmp_path, monkeypatch):
        write_ptb(tmp_path)
        first = load_ptb(tmp_path)
        monkeypatch.setattr(ptb, "read_words", lambda path: pytest.fail("read again"))
        assert torch.equal(load_ptb(tmp_path).train, first.train)

    def test_changed_sources_are_noticed_and_old_caches_go(self, tmp_path):
        write_ptb(tmp_path)
        old, _ = load_ptb(tmp_path), load_ptb(tmp_path, tokens=3)
        assert len(list((tmp_path / "cache").glob("ptb-*"))) == 2
        write_ptb(tmp_path, train=" a b b \n c <unk> \n")
        os.utime(tmp_path / "ptb/ptb.train.txt", (1, 1))
        assert spelled(load_ptb(tmp_path), "train").startswith("a b b")
        assert len(list((tmp_path / "cache").glob("ptb-*"))) == 1
        assert spelled(old, "train").startswith("a b a")

    def test_writes_stay_private(self, tmp_path):
        write_ptb(tmp_path)
        corpus, again = load_ptb(tmp_path), load_ptb(tmp_path)
        corpus.train.zero_()
        assert again.train.any()
        assert load_ptb(tmp_path).train.any()

    @pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
    def test_maps_go_with_their_tensors(self, tmp_path):
        write_ptb(tmp_path)
        corpus = load_ptb(tmp_path)
        (place,) = (tmp_path / "cache").glob("ptb-*")
        assert str(place / "train.npy") in Path("/proc/self/maps").read_text()
        del corpus
        gc.collect()
        assert str(place / "train.npy") not in Path("/proc/self/maps").read_text()

    @pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
    def test_a_damaged_cache_is_rebuilt(self, damage, tmp_path):
        write_ptb(tmp_path)
        load_ptb(tmp_path)
        (place,) = (tmp_path / "cache").glob("ptb-*")
        whole = (place / "train.npy").read_bytes()
        (place / "train.npy").write_bytes(whole[:-8] if damage is None else damage)
        assert spelled(load_ptb(tmp_path), "train") == "a b a <eos> c <unk> <eos>"
        (place / "words.npy").unlink()
        assert len(load_ptb(tmp_path).words) == 5

    def test_a_crashed_build_leaves_no_cache(self, tmp_path, monkeypatch):
        write_ptb(tmp_path)

        def full(*arguments):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(cache.np, "save", full)
            with pytest.raises(DataError, match=r"cannot write the cache .*No space left"):
                load_ptb(tmp_path)
        assert list((tmp_path / "cache").glob("ptb-*")) == []
        assert len(load_ptb(tmp_path).train) == 7

    def test_built_once_by_many(self, tmp_path):
        (source := tmp_path / "source").write_text("x")
        builds, found = [], []

        def build():
            builds.append(1)
            threading.Event().wait(0.2)
            return {"x": np.arange(5)}

        def work():
            found.append(cached(tmp_path, "n", [source], {}, ["x"], build)["x"].tolist())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(builds) == 1
        assert found == [[0, 1, 2, 3, 4]] * 4

    def test_sources_that_change_under_the_reader(self, tmp_path):
        (source := tmp_path / "source").write_text("")
        values = []

        def build():
            values.append(len(values))
            if len(values) == 1:
                source.write_text("changed")
            return {"x": np.array(values)}

        assert cached(tmp_path, "n", [source], {}, ["x"], build)["x"].tolist() == [0, 1]

        def restless():
            source.write_text(source.read_text() + "x")
            return {"x": np.arange(1)}

        with pytest.raises(DataError, match="keeps changing"):
            cached(tmp_path, "n", [source], {"other": 1}, ["x"], restless)

    def test_unwritable(self, tmp_path):
        write_ptb(tmp_path)
        (tmp_path / "cache").write_text("in the way")
        with pytest.raises(DataError, match=r"cannot write to .*/cache"):
            load_ptb(tmp_path)


class TestDataDir:
    @pytest.fixture(autouse=True)
    def _home(self, monkeypatch):
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.delenv("STN_TUNE_DATA", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(download.sys, "platform", "linux")

    def test_order(self, monkeypatch):
        assert data_dir(None) == Path("/home/me/.cache/stn_tune")
        monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
        assert data_dir(None) == Path("/caches/stn_tune")
        monkeypatch.setenv("STN_TUNE_DATA", "~/data")
        assert data_dir(None) == Path("/home/me/data")
        assert data_dir("here") == Path.cwd() / "here"

    def test_macos(self, monkeypatch):
        monkeypatch.setattr(download.sys, "platform", "darwin")
        assert data_dir(None) == Path("/home/me/Library/Caches/stn_tune")


def real(name):
    folder = os.environ.get("STN_TUNE_DATA")
    if not folder or SOURCES[name].missing(Path(folder)):
        pytest.skip(f"$STN_TUNE_DATA has no {name}: run `python -m benchmarks data {name}`")
    return Path(folder)


class TestRealData:
    def test_ptb(self):
        corpus = load_ptb(real("ptb"))
        assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [929_589, 73_760, 82_430]
        assert len(corpus.words) == 10_000
        assert spelled(replace(corpus, train=corpus.train[:3]), "train") == "aer banknote berlitz"

    def test_cifar10(self):
        images = load_cifar10(real("cifar10"))
        assert images.train_x.shape == (50_000, 3, 32, 32)
        assert images.test_x.shape == (10_000, 3, 32, 32)
        assert images.train_y.bincount().tolist() == [5000] * 10
        assert images.test_y.bincount().tolist() == [1000] * 10
        assert 110 < images.test_x.float().mean() < 130
