"""tf.data on the pipelines of input_bench: tf_data.py WORK FOLDER [--variant=V]. A variant is another way that users write it."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from common import read_gzip, serve_input  # noqa: E402

BATCH = 128
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def normalise(parsed):
    image = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, 1, 28, 28])
    return tf.cast(image, tf.float32) / 255, parsed["label"]


def examples(folder, variant):
    records = tf.data.TFRecordDataset(os.path.join(folder, "examples.tfrecord"))
    if variant == "one by one":
        def parse(record):
            parsed = tf.io.parse_single_example(record, FEATURES)
            image = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [1, 28, 28])
            return tf.cast(image, tf.float32) / 255, parsed["label"]
        return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH)
    calls = tf.data.AUTOTUNE if variant == "batches in parallel" else None
    return records.batch(BATCH).map(lambda r: normalise(tf.io.parse_example(r, FEATURES)), num_parallel_calls=calls)


def records(folder, variant):
    reads = 2 if variant == "parallel reads" else None
    return tf.data.TFRecordDataset([os.path.join(folder, "records.tfrecord")], num_parallel_reads=reads)


def images():
    pixels = read_gzip("train-images-idx3-ubyte.gz", 16, 60_000 * 784).astype(np.float32).reshape(-1, 1, 28, 28) / 255
    labels = read_gzip("train-labels-idx1-ubyte.gz", 8, 60_000).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((pixels, labels)).shuffle(60_000, seed=1).batch(BATCH)


def distributed():
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                               [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return strategy.experimental_distribute_dataset(images())


def make(work, folder, variant):
    dataset = {"records": lambda: records(folder, variant).batch(BATCH),
               "shuffled_records": lambda: records(folder, variant).shuffle(10_000, seed=1).batch(BATCH).prefetch(tf.data.AUTOTUNE),
               "examples": lambda: examples(folder, variant),
               "range": lambda: tf.data.Dataset.range(10_000_000).batch(BATCH),
               "range_map": lambda: tf.data.Dataset.range(10_000_000).map(
                   lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE if variant == "parallel" else None).batch(BATCH),
               "images": images,
               "distributed_images": distributed,
               "lines": lambda: tf.data.TextLineDataset(os.path.join(folder, "lines.txt")).batch(BATCH)}[work]()
    return dataset


def rows_of(element):
    if isinstance(element, tuple):
        element = element[0]
    if isinstance(element, tf.distribute.DistributedValues):
        return sum(int(part.shape[0]) for part in element.values)
    return int(element.shape[0])


def main():
    work, folder = sys.argv[1:3]
    variant = sys.argv[3].partition("=")[2] if len(sys.argv) > 3 else ""
    serve_input(make(work, folder, variant), rows_of)


if __name__ == "__main__":
    main()
