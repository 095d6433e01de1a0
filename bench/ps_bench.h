#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/trainer.h"

namespace bench {

// 64 MB, and 10,000 rows out of `rows`, to and from one parameter server, in turns with raw TCP. Prints a line of JSON for
// each: MB/s. Throws when what arrives differs from what was sent.
void measure_transfers(int rounds, std::int64_t rows);

// What a server takes beyond a process without variables, over and above them and their optimizers' state. A line of JSON.
void measure_memory();

// How many servers there are beside two workers, and on how many of them each variable is.
struct PsCluster {
  int servers = 1;
  int replication = 1;
};

// Steps of W1 or W4, closures that do nothing ("closures"), or updates by the coordinator itself: of 10,000 rows
// ("push_rows"), of 64 MB ("push_dense").
std::unique_ptr<Trainer> make_ps_trainer(const std::string& work, const PsCluster& cluster);

}  // namespace bench
