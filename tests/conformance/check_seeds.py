#!/usr/bin/env python3
"""Checks docs/seeds.md: everything that the five pages document is listed, with a test that exists, or with the reason why not.

  check_seeds.py [--build FOLDER]

With --build the named tests must also have passed when scripts/run_tests.py last ran them there (those that it has not run
are counted). Prints "N names: ... tested, ... n/a; 79 blocks: ... ported, ... n/a". Exits with 1 when something is wrong.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path

from check_cases import ROOT, TEST

PAGE = ROOT / "docs/seeds.md"
SEEDS = ROOT / "examples/seeds"

INPUT = {"experimental_distribute_dataset": "dataset options", "experimental_distribute_values_from_function": "value_fn",
         "experimental_local_results": "value", "reduce": "reduce_op value axis", "run": "fn args kwargs options", "scope": ""}
LATER = {**INPUT, "distribute_datasets_from_function": "dataset_fn options", "gather": "value axis"}
ATTRIBUTES = [".extended", ".num_replicas_in_sync"]

# Of each page: the prefix of its blocks and how many it has, its class and the class's arguments, its attributes, its methods
# with their arguments.
PAGES = {
    "tf.distribute.Strategy": (
        "strategy", 18, "Strategy", "extended", [".cluster_resolver", *ATTRIBUTES],
        {**INPUT, "experimental_assign_to_logical_device": "tensor logical_device_id",
         "experimental_distribute_datasets_from_function": "dataset_fn options",
         "experimental_make_numpy_dataset": "numpy_input", "experimental_replicate_to_logical_devices": "tensor",
         "experimental_split_to_logical_devices": "tensor partition_dimensions"}),
    "tf.compat.v1.distribute.MirroredStrategy": (
        "mirrored_v1", 11, "MirroredStrategy", "devices cross_device_ops", ATTRIBUTES,
        {"experimental_distribute_dataset": "dataset", "experimental_distribute_datasets_from_function": "dataset_fn",
         "experimental_local_results": "value", "experimental_make_numpy_dataset": "numpy_input session",
         "experimental_run": "fn input_iterator", "make_dataset_iterator": "dataset",
         "make_input_fn_iterator": "input_fn replication_mode", "reduce": "reduce_op value axis",
         "run": "fn args kwargs options", "scope": "", "update_config_proto": "config_proto"}),
    "tf.distribute.MultiWorkerMirroredStrategy": (
        "multi_worker", 18, "MultiWorkerMirroredStrategy", "cluster_resolver communication_options",
        [".cluster_resolver", *ATTRIBUTES], LATER),
    "tf.distribute.experimental.MultiWorkerMirroredStrategy": (
        "multi_worker_experimental", 18, "MultiWorkerMirroredStrategy", "communication cluster_resolver",
        [".cluster_resolver", *ATTRIBUTES], LATER),
    "runner.ParameterServerStrategy": (
        "parameter_server", 14, "ParameterServerStrategy", "min_shard_bytes cluster_resolver variable_partitioner",
        [".cluster_resolver", *ATTRIBUTES], LATER),
}

OTHERS = "Other names on the pages"
# What the pages name in their text and code.
OTHER_NAMES = """
tf.distribute.MirroredStrategy tf.distribute.OneDeviceStrategy tf.distribute.TPUStrategy
tf.distribute.experimental.TPUStrategy TPUStrategy.gather experimental_device_assignment tf.distribute.get_strategy
tf.distribute.get_replica_context tf.distribute.RunOptions tf.distribute.ReplicaContext
ReplicaContext.replica_id_in_sync_group ReplicaContext.all_reduce ReplicaContext.all_gather tf.distribute.StrategyExtended
StrategyExtended.reduce_to StrategyExtended.batch_reduce_to extended.call_for_each_replica extended.worker_devices
extended.colocate_vars_with tf.distribute.DistributedValues PerReplica Mirrored tf.distribute.ReduceOp ReduceOp.SUM
ReduceOp.MEAN tf.Variable MirroredVariable tf.VariableSynchronization.ON_READ tf.variable_creator_scope tf.IndexedSlices
tf.compat.v1.TensorInfo.CompositeTensor tf.nest tf.distribute.DistributedDataset DistributedDataset.element_spec tf.TypeSpec
input_signature tf.distribute.InputIterator InputIterator.initialize InputIterator.get_next tf.distribute.InputContext
InputContext.num_input_pipelines InputContext.input_pipeline_id InputContext.get_per_replica_batch_size
tf.distribute.InputOptions tf.distribute.InputReplicationMode InputReplicationMode.PER_WORKER tf.distribute.ValueContext
ValueContext.replica_id_in_sync_group ValueContext.num_replicas_in_sync tf.data.Dataset Dataset.range Dataset.from_tensors
Dataset.from_tensor_slices Dataset.batch Dataset.repeat Dataset.shard Dataset.prefetch tf.data.TFRecordDataset
tf.data.TextLineDataset tf.data.experimental.DistributeOptions DistributeOptions.auto_shard_policy
tf.data.experimental.AutoShardPolicy AutoShardPolicy.AUTO AutoShardPolicy.OFF tf.distribute.cluster_resolver.ClusterResolver
ClusterResolver.task_type ClusterResolver.task_id ClusterResolver.num_accelerators
tf.distribute.cluster_resolver.TFConfigClusterResolver TF_CONFIG tf.distribute.cluster_resolver.TPUClusterResolver
tf.config.experimental_connect_to_cluster tf.tpu.experimental.initialize_tpu_system
tf.tpu.experimental.DeviceAssignment.build computation_shape num_replicas tf.distribute.experimental.CommunicationOptions
tf.distribute.experimental.CommunicationImplementation CommunicationImplementation.AUTO CommunicationImplementation.RING
CommunicationImplementation.NCCL tf.distribute.experimental.CollectiveCommunication.AUTO CrossDeviceOps NcclAllReduce
tf.distribute.experimental.partitioners.Partitioner MinSizePartitioner min_shard_bytes max_shards tf.keras.Model
Model.compile Model.fit Model.evaluate Model.predict Model.save tf.saved_model.save checkpoint.restore tf.keras.Sequential
tf.keras.layers.Dense tf.keras.optimizers.SGD optimizer.apply_gradients tf.keras.losses.sparse_categorical_crossentropy
tf.keras.metrics tf.GradientTape tape.gradient tf.function tf.Tensor tf.constant tf.identity tf.add tf.range tf.reshape
tf.expand_dims tf.random.uniform np.array np.ones np.float32 np.random.random np.random.randint tf.device Tensor.device iter
next tf.ConfigProto tf.estimator.Estimator tf.estimator.RunConfig
""".split()


def names_of_page(title):
    _, _, kind, arguments, attributes, methods = PAGES[title]
    yield kind
    yield from (f"{kind}: {argument}" for argument in arguments.split())
    yield from attributes
    for method, its in methods.items():
        yield method
        yield from (f"{method}: {argument}" for argument in its.split())


def read_tables(text):
    """(section, head of the first column, cells) of every row."""
    section = head = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section, head = line[3:], ""
        elif not line.startswith("|"):
            head = ""
        else:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not head:
                head = cells[0]
            elif not set(line) <= set("|- "):
                yield section, head, cells


def find_tests():
    """The names of all tests: GoogleTest's, and the programs that CMake registers by name."""
    names = set()
    for folder in (ROOT / "tests", ROOT / "lockstep"):
        for path in folder.rglob("*_test.cc"):
            names.update(f"{suite}.{name}" for suite, name in TEST.findall(path.read_text()))
    names.update(re.findall(r"\bNAME (example_\w+) ", (ROOT / "tests/CMakeLists.txt").read_text()))
    return names


def read_results(folder):
    """By test whether it passed, of the reports that run_tests.py has left. Of a test with parameters all must pass."""
    passed = {}
    for path in sorted(Path(folder).glob("*.xml")):
        for case in xml.parse(path).getroot().iter("testcase"):
            suite = re.sub(r"^\w+/", "", case.get("classname"))
            name = f"{re.sub(r'/.*', '', suite)}.{case.get('name').split('/')[0]}"
            if case.get("status") == "run":
                passed[name] = passed.get(name, True) and case.find("failure") is None
    return passed


def check_names(section, rows, wanted, tests):
    listed = Counter()
    for cells in rows:
        if len(cells) != 3:
            yield f"{section}: a row has {len(cells)} cells: {cells[0]}"
            continue
        name, ours, test = cells
        in_name = re.findall(r"`([^`]+)`", name)
        listed.update(in_name if section == OTHERS else [": ".join(in_name)])
        if not ours or not test or "open" in (ours, test):
            yield f"{section}: {name} is not done"
        elif test != "n/a":
            yield from (f"{section}: {name}: there is no test {one}" for one in test.split(", ") if one not in tests)
    for name in wanted:
        if listed[name] != 1:
            yield f"{section}: {name} is listed {listed[name]} times"
    yield from (f"{section}: the page has no {name}" for name in listed if name not in set(wanted))


def check_blocks(title, rows, tests):
    prefix, count = PAGES[title][:2]
    listed = Counter(cells[0] for cells in rows)
    wanted = [f"{prefix}_{number:02}" for number in range(1, count + 1)]
    sources = {path: path.read_text() for path in sorted(SEEDS.glob("*.cc"))}
    for block in wanted:
        if listed[block] != 1:
            yield f"{title}: block {block} is listed {listed[block]} times"
    for cells in rows:
        block, what, where = cells
        if block not in wanted:
            yield f"{title}: the page has no block {block}"
        if not what or not where:
            yield f"{title}: block {block} is not done"
        runs_it = [path for path, text in sources.items() if f'"{block}"' in text]
        if where.startswith("n/a"):
            if len(where) < 8 or runs_it:
                yield f"{title}: block {block} is n/a without a reason, or though it is ported"
            continue
        if not (SEEDS / re.split(r"[;,]", where)[0]).is_file():
            yield f"{title}: block {block}: there is no examples/seeds/{where}"
        if len(runs_it) != 1:
            yield f"{title}: block {block} is run by {len(runs_it)} programs"
        yield from (f"{title}: there is no test example_seeds_{path.stem}, for block {block}" for path in runs_it
                    if f"example_seeds_{path.stem}" not in tests)


def all_problems(rows, tests):
    def of(section, head):
        return [cells for its, its_head, cells in rows if its == section and its_head == head]

    for title in PAGES:
        yield from check_names(title, of(title, "on the page"), list(names_of_page(title)), tests)
        yield from check_blocks(title, of(title, "block"), tests)
    yield from check_names(OTHERS, of(OTHERS, "on the page"), OTHER_NAMES, tests)
    known = {*PAGES, OTHERS}
    yield from (f"{section}: no page has this title" for section in {row[0] for row in rows} if section not in known)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    arguments = parser.parse_args()
    rows = list(read_tables(PAGE.read_text()))
    problems = list(all_problems(rows, find_tests()))
    names = [cells for _, head, cells in rows if head == "on the page"]
    blocks = [cells for _, head, cells in rows if head == "block"]
    named = {one for cells in names for one in cells[-1].split(", ") if "." in one}
    summary = ""
    if arguments.build:
        passed = read_results(arguments.build)
        problems += [f"{name} failed when it last ran" for name in sorted(named) if passed.get(name) is False]
        summary = f"; of {len(named)} GoogleTests {sum(name in passed for name in named)} have run"
    for problem in problems:
        print(f"docs/seeds.md: {problem}", file=sys.stderr)
    without = sum(cells[-1] == "n/a" for cells in names), sum(cells[-1].startswith("n/a") for cells in blocks)
    print(f"{len(names)} names: {len(names) - without[0]} tested, {without[0]} n/a; "
          f"{len(blocks)} blocks: {len(blocks) - without[1]} ported, {without[1]} n/a{summary}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
