#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tests/multi_worker/scenarios.h"

// One worker of a test's cluster: `worker SCENARIO [key=value ...]`. What it found goes to standard output, one line each;
// an error of Lockstep is the line "error CODE MESSAGE" and exit code 3.

int main(int argc, char** argv) {
  using namespace lockstep::testing;
  if (argc < 2) {
    std::cerr << "usage: worker SCENARIO [key=value ...]\n";
    return 2;
  }
  try {
    run_scenario(argv[1], Parameters({argv + 2, argv + argc}));
    return 0;
  } catch (const lockstep::Error& error) {
    std::cout << "error " << lockstep::name_of(error.code()) << " " << error.message() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    std::cout << "exception " << error.what() << std::endl;
    return 4;
  }
}
