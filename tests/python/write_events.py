#!/usr/bin/env python3
"""Logs of three runs, written by TensorBoard's own package, for `lockstep report` to read. Usage: write_events.py LOGDIR

Scalars in both forms that there are: simple values (TensorFlow 1, PyTorch) and tensors (TensorFlow 2, Keras)."""
import math
import os
import random
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.plugins.scalar import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def simple(tag, value):
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def tensor(tag, value):
    proto = tensor_pb2.TensorProto(dtype=1, tensor_shape=tensor_shape_pb2.TensorShapeProto(), float_val=[value])
    return summary_pb2.Summary.Value(tag=tag, tensor=proto, metadata=metadata.create_summary_metadata("", ""))


def main():
    random.seed(1)
    for run, rate in {"adam 1e-3": 1.0, "sgd 0.1": 0.5, "sgd 0.01 <no warm-up>": 0.2}.items():
        for part, form in {"train": simple, "validation": tensor}.items():
            writer = EventFileWriter(os.path.join(sys.argv[1], run, part))
            for step in range(0, 20_000, 10 if part == "train" else 1000):
                loss = 2.3 * math.exp(-rate * step / 4000) + 0.25 + (0.1 if part == "validation" else random.gauss(0, 0.06))
                values = [form("loss", loss), form("accuracy", max(0.0, 1 - loss / 2.6))]
                if part == "train":
                    values += [form("learning_rate", 1e-3 * 0.5 ** (step // 5000)), form("gradient_norm", float("nan") if step == 50 else abs(random.gauss(3, 1)))]
                event = event_pb2.Event(wall_time=1.75e9 + step / 10, step=step, summary=summary_pb2.Summary(value=values))
                writer.add_event(event)
            writer.close()


if __name__ == "__main__":
    main()
