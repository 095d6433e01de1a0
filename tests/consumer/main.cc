// A program outside the repository's build: uses the installed headers and library only.
#include <torch/torch.h>

#include <lockstep/lockstep.h>

#include <iostream>

int main() {
  lockstep::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto ids =
      strategy.run([](lockstep::ReplicaContext& context) { return at::scalar_tensor(1 + context.replica_id_in_sync_group()); });
  const auto sum = strategy.reduce("sum", ids).item<double>();
  std::cout << "sum over the replicas: " << sum << "\n";
  return sum == 3 ? 0 : 1;
}
