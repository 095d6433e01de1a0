#include <cstdlib>

#include "tests/conformance/testing.h"

// Which devices a MirroredStrategy has.

namespace lockstep::testing {
namespace {

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~EnvironmentVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(MirroredDevices, DoNotComeFromTfConfig) {
  const EnvironmentVariable config("TF_CONFIG", R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
                                                    "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(MirroredStrategy(cpus(2)).num_replicas_in_sync(), 2);
}

}  // namespace
}  // namespace lockstep::testing
