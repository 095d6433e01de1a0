"""Training of W1 to W5: Lockstep in turns with its peers."""

import os

from driver import cluster
from driver.processes import KEPT_PAGES
from driver.report import row
from driver.turns import Turns

MODELS = ["W1", "W2", "W3", "W4", "W5"]
INDEPENDENT = "two C++ processes without communication"
DDP = "PyTorch DDP, gloo"
TF = "TensorFlow MirroredStrategy"
TF_LOOP = "TensorFlow MirroredStrategy, all steps in one tf.function"
TF_WORKERS = "TensorFlow MultiWorkerMirroredStrategy"
TF_WORKERS_LOOP = "TensorFlow MultiWorkerMirroredStrategy, all steps in one tf.function"
WORKERS = "two workers"
MIRRORED = "MirroredStrategy with two replicas"
TARGETS = {
    INDEPENDENT: {"W1": 0.90, "W2": 0.90, "W3": 0.85, "W4": 0.8, "W5": 0.90},
    DDP: {"W1": 5, "W2": 1.5, "W3": 1.0, "W4": 2, "W5": 1.1},
    TF: {"W1": 2.5, "W4": 4, "W5": 1.25},
    TF_LOOP: {},
}
# Two workers of one replica each.
WORKER_TARGETS = {
    DDP: {"W1": 1, "W2": 1, "W3": 1, "W4": 1, "W5": 1},
    TF_WORKERS: {"W1": 5, "W2": 1, "W4": 5, "W5": 1},
    TF_WORKERS_LOOP: {},
}
FOREIGN = (DDP, TF, TF_LOOP, TF_WORKERS, TF_WORKERS_LOOP)
# Overlap may not cost anything; this much is what two identical programs differ by on a quiet machine.
OVERLAP_NOISE = 0.03


def plans_of(model, settings):
    program = os.path.join(settings.build, "bin", "train_bench")
    peers = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    alone = [[program, "--mode=independent", f"--model={model}", f"--part={part}"] for part in range(2)]
    ours = [f"--model={model}", *settings.lockstep_args]
    plans = [("lockstep", "", [[program, "--mode=lockstep", *ours]], {}),
             ("no overlap", "", [[program, "--mode=lockstep_no_overlap", *ours]], {}),
             (INDEPENDENT, "malloc as it is", alone, one_thread),
             (INDEPENDENT, "malloc keeps pages", alone, {**one_thread, **KEPT_PAGES})]
    if settings.torch:
        ddp = [[settings.torch, os.path.join(peers, "ddp.py"), model]]
        plans += [(DDP, "malloc as it is", ddp, {}), (DDP, "malloc keeps pages", ddp, KEPT_PAGES)]
    if settings.tensorflow:
        for who, script, form in ((TF, "tf_mirrored.py", "call"), (TF_LOOP, "tf_mirrored.py", "loop"),
                                  (TF_WORKERS, "tf_multi_worker.py", "call"), (TF_WORKERS_LOOP, "tf_multi_worker.py", "loop")):
            command = [settings.tensorflow, os.path.join(peers, script), model, f"--form={form}"]
            plans += [(who, f"{intra} x {inter} threads", [command + [f"--intra={intra}", f"--inter={inter}"]], {})
                      for intra, inter in ((0, 0), (1, 2))]
    plans.append((WORKERS, "", [[program, "--mode=worker", *ours]] * 2, cluster.environments(2)))
    return plans


def rows_of(turns):
    lockstep = turns.contenders["lockstep", ""]
    plain = turns.contenders["no overlap", ""]
    result = []
    for who, targets in TARGETS.items():
        result += turns.against(f"train {turns.model}", lockstep, who, targets.get(turns.model))
    workers = turns.contenders[WORKERS, ""]
    result.append(row(f"two workers {turns.model}", "examples/s", workers.samples, peer=MIRRORED,
                      peer_values=lockstep.samples, target=0.95,
                      config={**turns.config(workers), "disturbed_samples": workers.disturbed + lockstep.disturbed}))
    for who, targets in WORKER_TARGETS.items():
        result += turns.against(f"two workers {turns.model}", workers, who, targets.get(turns.model))
    result.append(row(f"overlap {turns.model}", "examples/s", lockstep.samples, peer="overlap off",
                      peer_values=plain.samples, target=1.0, tolerance=OVERLAP_NOISE,
                      config={**turns.config(lockstep), "disturbed_samples": lockstep.disturbed + plain.disturbed}))
    return result


def measure(model, settings):
    """The rows of one model, and the names of contenders whose loss did not fall."""
    return Turns(model, settings, plans_of(model, settings), FOREIGN).measure(rows_of)
