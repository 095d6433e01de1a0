// The smallest program: one function, run by two replicas at the same time, and one number made of both results.
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

int main() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto ids = strategy.run([](ls::ReplicaContext& replica) { return replica.replica_id_in_sync_group(); });
  const int sum = strategy.reduce("sum", ids);
  std::cout << ids << "\nsum " << sum << "\n";
  return sum == 0 + 1 ? 0 : 1;
}
