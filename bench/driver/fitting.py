"""Model.fit in turns with the loop that a user writes, with Keras's fit, and with everything that can be watched."""

import os

from driver.report import row
from driver.turns import Turns

MODELS = ["W2", "W3"]
FIT, LOOP, EVERYTHING = "fit", "the same training as a loop", "fit with everything"
BARE = "a loop over 16 batches that lie split in memory"
KERAS = "Keras fit, TensorFlow MirroredStrategy"
LIVES = 8  # where its memory lies makes one process of the same program up to 8 % faster than the next
OFF = "fit without accuracy, progress, TensorBoard and trace"


def plans_of(model, settings):
    program = os.path.join(settings.build, "bin", "train_bench")
    plans = [(who, "", [[program, f"--mode={mode}", f"--model={model}"]], {})
             for who, mode in ((FIT, "fit"), (LOOP, "loop"), (BARE, "lockstep"), (EVERYTHING, "fit_everything"))]
    if settings.tensorflow:
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers", "tf_mirrored.py")
        plans += [(KERAS, f"{intra} x {inter} threads",
                   [[settings.tensorflow, script, model, "--form=fit", f"--intra={intra}", f"--inter={inter}"]], {})
                  for intra, inter in ((0, 0), (1, 2))]
    return plans


def rows_of(turns):
    fit, everything = turns.contenders[FIT, ""], turns.contenders[EVERYTHING, ""]
    rows = turns.against(f"fit {turns.model}", fit, LOOP, 0.97)
    rows += turns.against(f"fit {turns.model}", fit, BARE, None)
    rows += turns.against(f"fit {turns.model}", fit, KERAS, 1.0)
    rows.append(row(f"fit {turns.model}, everything on", "examples/s", everything.samples, peer=OFF, peer_values=fit.samples, target=0.97, is_paired=True,
                    config={**turns.config(everything), "disturbed_samples": everything.disturbed + fit.disturbed}))
    return rows


def measure(settings):
    rows, not_learning = [], []
    for model in MODELS:
        found, wrong = Turns(model, settings, plans_of(model, settings), (KERAS,), LIVES).measure(rows_of)
        rows += found
        not_learning += wrong
    return rows, not_learning
