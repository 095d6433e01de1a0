#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

// Other processes that run this test program.

namespace lockstep::testing {

// Makes `program --child=<name> <arguments...>` run `body`, whose result is the exit code.
class Child {
 public:
  using Body = std::function<int(const std::vector<std::string>& arguments)>;
  Child(const std::string& name, Body body);
};

// Starts the child; the caller ends it.
pid_t start_child(const std::string& name, const std::vector<std::string>& arguments);

// The path of this program.
std::string this_program();

}  // namespace lockstep::testing
