"""Input pipelines: ours in turns with tf.data and LibTorch's loader, on the same files."""

import os
import subprocess
from statistics import median

from driver.processes import Contender, Failure
from driver.report import row

TF_DATA = "tf.data"
LIBTORCH = "LibTorch's loader, two workers"
PYTORCH = "PyTorch's loader"
PYTORCH_VARIANTS = ["", "two workers", "whole batches"]
MEMORY = "the same from memory"
# Peers that are works of our own program.
OURS = {LIBTORCH: "images_libtorch", MEMORY: "train_memory"}
# work -> what it is, our forms (the best counts), tf.data's variants, the ratio that must be reached of which peer
WORKS = {
    "records": ("100,000 TFRecords of 1 KB, batch(128)", ["records"], ["", "parallel reads"], {TF_DATA: 2}),
    "shuffled_records": ("the same, shuffle(10,000), prefetch", ["shuffled_records"], ["", "parallel reads"], {TF_DATA: 5}),
    "examples": ("tf.train.Example: parse, decode, normalise, batch(128)", ["examples", "examples_prefetched"],
                 ["", "one by one", "batches in parallel"], {TF_DATA: 1.5}),
    "range": ("range(10M).batch(128)", ["range"], [""], {TF_DATA: 3}),
    "range_map": ("range(10M).map(x + 1).batch(128)", ["range_map", "range_map_parallel"], ["", "parallel"], {TF_DATA: 10}),
    "images": ("Fashion-MNIST in memory, shuffle, batch(128)", ["images"], [""], {TF_DATA: None, PYTORCH: None, LIBTORCH: 2}),
    "distributed_images": ("the same, distributed to 2 replicas", ["distributed_images"], [""], {TF_DATA: 10}),
    "train_records": ("training W2 from 4 TFRecord files", ["train_records"], [], {MEMORY: 0.95}),
    "lines": ("100 MB of text lines, batch(128)", ["lines"], [""], {TF_DATA: 1.5}),
}


def start_all(work, settings, program, folder):
    """(who, variant) -> Contender, each warm."""
    _, ours, variants, targets = WORKS[work]
    peers = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
    plans = [("lockstep", form, [program, f"--work={form}", f"--folder={folder}"]) for form in ours]
    plans += [(who, "", [program, f"--work={OURS[who]}", f"--folder={folder}"]) for who in targets if who in OURS]
    if settings.tensorflow:
        script = os.path.join(peers, "tf_data.py")
        plans += [(TF_DATA, variant, [settings.tensorflow, script, work, folder, f"--variant={variant}"]) for variant in variants]
    if settings.torch and PYTORCH in targets:
        script = os.path.join(peers, "torch_loader.py")
        plans += [(PYTORCH, variant, [settings.torch, script, f"--variant={variant}"]) for variant in PYTORCH_VARIANTS]
    contenders = {}
    for who, variant, command in plans:
        contender = Contender(f"input {work} {who} {variant}".strip(), [command], {}, settings.logs)
        try:
            contender.wait_until_ready()
            contender.train(min(1.0, settings.window))
            contenders[who, variant] = contender
        except Failure as failure:
            contender.stop()
            if who == "lockstep":
                raise
            print(f"  {failure}; its line is left out", flush=True)
    return contenders


def best_of(contenders, who):
    found = [c for (name, _), c in contenders.items() if name == who]
    return max(found, key=lambda c: median(c.samples), default=None)


def measure_work(work, settings, program, folder):
    what, _, _, targets = WORKS[work]
    contenders = start_all(work, settings, program, folder)
    try:
        order = list(contenders.values())
        for k in range(settings.rounds):
            for contender in order[k % len(order):] + order[:k % len(order)]:
                contender.sample(settings.window, settings.patience)
    finally:
        for contender in contenders.values():
            contender.stop()
    ours = best_of(contenders, "lockstep")
    medians = {f"{who} {variant}".strip(): round(median(c.samples)) for (who, variant), c in contenders.items()}
    rows = []
    for who, target in targets.items():
        peer = best_of(contenders, who)
        if peer is not None:
            rows.append(row(f"input: {what}", "examples/s", ours.samples, peer=who, peer_values=peer.samples, target=target,
                            config={"medians": medians, "disturbed_samples": ours.disturbed + peer.disturbed}))
    return rows or [row(f"input: {what}", "examples/s", ours.samples, config={"medians": medians})]


def measure(settings):
    program = os.path.join(settings.build, "bin", "input_bench")
    folder = os.path.join(settings.build, "bench_files")
    subprocess.run([program, "--work=files", f"--folder={folder}"], check=True, timeout=300)
    rows = []
    for work in WORKS:
        rows += measure_work(work, settings, program, folder)
    return rows
