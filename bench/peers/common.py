"""What all Python peers share: the data, and the window protocol of train_bench (see bench/README.md)."""

import gzip
import json
import os
import sys
import time

import numpy as np

BATCHES = 16
REPLICAS = 2
BATCH = {"W1": 64, "W2": 64, "W3": 64, "W4": 256, "W5": 32}
LEARNING_RATE = {"W1": 0.01, "W2": 0.001, "W3": 0.001, "W4": 0.01, "W5": 0.001}
USES_ADAM = {"W1": False, "W2": False, "W3": True, "W4": False, "W5": True}
FOLDER = os.environ.get("LOCKSTEP_FASHION_MNIST") or "/usr/share/datasets/fashion-mnist"


def read_gzip(name, begin, count):
    with gzip.open(os.path.join(FOLDER, name), "rb") as file:
        file.seek(begin)
        return np.frombuffer(file.read(count), dtype=np.uint8)


def image_batches(model, part):
    count = BATCH[model] * BATCHES
    pixels = read_gzip("train-images-idx3-ubyte.gz", 16 + part * count * 784, count * 784)
    labels = read_gzip("train-labels-idx1-ubyte.gz", 8 + part * count, count)
    images = pixels.astype(np.float32).reshape(BATCHES, BATCH[model], 1, 28, 28) / 255
    return images, labels.astype(np.int64).reshape(BATCHES, BATCH[model])


def random_batches(model, part):
    random = np.random.default_rng(1234 + part)
    batch = BATCH[model]
    if model == "W4":
        ids = random.integers(0, 1_000_000, (BATCHES, batch, 26))
        return ids.astype(np.int64), random.integers(0, 2, (BATCHES, batch)).astype(np.float32)
    sequences = random.standard_normal((BATCHES, batch, 64, 128), dtype=np.float32)
    return sequences, sequences.mean(2)[:, :, :10].argmax(2).astype(np.int64)  # something that can be learnt


def make_batches(model, part):
    """Inputs and targets with a first dimension of 16: images [n, 1, 28, 28], ids [n, 26], sequences [n, 64, 128]."""
    return image_batches(model, part) if model in ("W1", "W2", "W3") else random_batches(model, part)


def serve(train, examples_per_step):
    """Answers `run S` and `quit` on standard input. train(steps) trains and returns the mean loss of the last steps, and, where
    not all of its time is training, the seconds that are."""
    train(2)
    start = time.perf_counter()
    train(2)
    rate = 2 / (time.perf_counter() - start)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        wanted, all_steps, all_seconds = float(words[1]), 0, 0.0
        while all_seconds < wanted / 2:  # the rate is not known before the first window
            steps = max(1, round(wanted * rate))
            start = time.perf_counter()
            loss = train(steps)
            seconds = time.perf_counter() - start
            if isinstance(loss, tuple):
                loss, seconds = loss
            all_steps, all_seconds = all_steps + steps, all_seconds + seconds
            rate = all_steps / all_seconds
        print(json.dumps({"examples_per_s": examples_per_step * rate, "steps": all_steps, "seconds": all_seconds, "loss": loss}),
              flush=True)


def serve_input(dataset, rows_of):
    """The same for an input pipeline, pass after pass; rows_of(batch) says how many examples a batch has."""
    iterator = iter(dataset)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        limit, examples, steps = float(words[1]), 0, 0
        start = time.perf_counter()
        while time.perf_counter() - start < limit:
            batch = next(iterator, None)
            steps += 1
            if batch is None:
                iterator = iter(dataset)
            else:
                examples += rows_of(batch)
        seconds = time.perf_counter() - start
        print(json.dumps({"examples_per_s": examples / seconds, "steps": steps, "seconds": seconds, "loss": 0}), flush=True)
