#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/serve/server.h"

// What the programs share that faults are done to.

namespace lockstep::testing {

// What the program was told, as key=value.
inline std::map<std::string, std::string>& parameters() {
  static std::map<std::string, std::string> all;
  return all;
}

inline std::int64_t number(const std::string& name, std::int64_t otherwise) {
  const auto found = parameters().find(name);
  return found == parameters().end() ? otherwise : std::stoll(found->second);
}

// All of main(): a server or a worker until it is told to end, or the chief, who leads. An Error is "error CODE MESSAGE", and
// exit code 3.
inline int run_job(int argc, char** argv, const std::function<ServerOptions()>& options, const std::function<int()>& lead) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    parameters()[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  try {
    return run_role_if_server(options()) ? 0 : lead();
  } catch (const Error& error) {
    std::cout << "error " << name_of(error.code()) << " " << error.message() << std::endl;
    return 3;
  }
}

}  // namespace lockstep::testing
