#!/usr/bin/env python3
"""The real TensorBoard reads what the example `observe` wrote, or what `fit` did with the callback TensorBoard, in five epochs.

Usage: check_events.py LOGDIR [fit]"""
import os
import sys

from tensorboard.backend.event_processing import event_accumulator, plugin_event_multiplexer
from tensorboard.util import tensor_util


def require(holds, what):
    if not holds:
        raise SystemExit(f"check_events: {what}")


def read_train(folder):
    """As the tool of the TensorBoard package that turns every value into a tensor, and names its plugin."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"tensors": 0})
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    require(sorted(multiplexer.Runs()) == ["train", "validation"], f"runs are {multiplexer.Runs()}")
    return multiplexer


def check_scalars(multiplexer):
    for run in ("train", "validation"):
        tags = multiplexer.PluginRunToTagToContent("scalars")[run]
        for tag in ("epoch_loss", "epoch_accuracy"):
            require(tag in tags, f"{run} has no scalar {tag}, but {sorted(tags)}")
            points = multiplexer.Tensors(run, tag)
            require([p.step for p in points] == [0, 1, 2, 3, 4], f"{run}/{tag}: steps {[p.step for p in points]}")
            values = [float(tensor_util.make_ndarray(p.tensor_proto)) for p in points]
            require(all(0 < value < 10 for value in values), f"{run}/{tag} is {values}")
            require(all(p.wall_time > 1.6e9 for p in points), f"{run}/{tag}: wall times")
        losses = [float(tensor_util.make_ndarray(p.tensor_proto)) for p in multiplexer.Tensors(run, "epoch_loss")]
        require(losses[-1] < losses[0], f"{run}: the loss went from {losses[0]} to {losses[-1]}")
    require("step_breakdown/worker0/compute" in multiplexer.PluginRunToTagToContent("scalars")["train"], "no step breakdown")


def check_fit(multiplexer):
    tags = multiplexer.PluginRunToTagToContent("scalars")["train"]
    for tag in ("epoch_learning_rate", "epoch_steps_per_second", "step_breakdown/worker0/input"):
        require(tag in tags, f"fit has written no {tag}, but {sorted(tags)}")
        require([p.step for p in multiplexer.Tensors("train", tag)] == [0, 1, 2, 3, 4], f"the steps of {tag}")
    rates = [float(tensor_util.make_ndarray(p.tensor_proto)) for p in multiplexer.Tensors("train", "epoch_learning_rate")]
    require(all(0 < rate < 1 for rate in rates), f"learning rates {rates}")


def check_histogram(multiplexer):
    require("hidden/weight" in multiplexer.PluginRunToTagToContent("histograms")["train"], "no histogram")
    for point in multiplexer.Tensors("train", "hidden/weight"):
        buckets = tensor_util.make_ndarray(point.tensor_proto)
        require(buckets.ndim == 2 and buckets.shape[1] == 3, f"histogram of shape {buckets.shape}")
        require(int(buckets[:, 2].sum()) == 784 * 64, f"the histogram counts {buckets[:, 2].sum()} values")
        require((buckets[:, 0] <= buckets[:, 1]).all(), "a bucket ends before it begins")


def check_text_and_image(multiplexer):
    require("about" in multiplexer.PluginRunToTagToContent("text")["train"], "no text")
    text = tensor_util.make_ndarray(multiplexer.Tensors("train", "about")[0].tensor_proto)
    require(b"**Adam**" in text.ravel()[0], f"the text is {text}")
    require("hidden" in multiplexer.PluginRunToTagToContent("images")["train"], "no image")
    width, height, png = tensor_util.make_ndarray(multiplexer.Tensors("train", "hidden")[0].tensor_proto)[:3]
    require((int(width), int(height)) == (112, 112), f"the image has {width} x {height} pixels")
    require(png.startswith(b"\x89PNG"), "the image is no PNG")


def check_older_reader(folder):
    accumulator = event_accumulator.EventAccumulator(os.path.join(folder, "train"))
    accumulator.Reload()
    require(len(accumulator.Scalars("epoch_loss")) == 5, "EventAccumulator sees other scalars")


def main():
    multiplexer = read_train(sys.argv[1])
    check_scalars(multiplexer)
    if sys.argv[2:] == ["fit"]:
        check_fit(multiplexer)
        check_older_reader(sys.argv[1])
        print("check_events: TensorBoard reads what fit wrote")
        return
    check_histogram(multiplexer)
    check_text_and_image(multiplexer)
    check_older_reader(sys.argv[1])
    print("check_events: TensorBoard reads scalars, histograms, texts and images")


if __name__ == "__main__":
    main()
