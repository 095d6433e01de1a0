#include "tests/engines/children.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::testing {
namespace {

constexpr const char* kFlag = "--child=";

std::map<std::string, Child::Body>& children() {
  static std::map<std::string, Child::Body> children;
  return children;
}

int run_child(const std::string& name, const std::vector<std::string>& arguments) {
  alarm(60);  // whatever becomes of the parent
  try {
    return children().at(name)(arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return 1;
  }
}

}  // namespace

Child::Child(const std::string& name, Body body) { children()[name] = std::move(body); }

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

pid_t start_child(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{this_program(), kFlag + name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int code = posix_spawn(&pid, words[0].c_str(), nullptr, nullptr, argv.data(), environ);
  if (code != 0) throw Error(ErrorCode::kInternal, str("cannot start ", words[0], ": ", errno_text(code)));
  return pid;
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const std::string flag = lockstep::testing::kFlag;
  if (first.starts_with(flag)) return lockstep::testing::run_child(first.substr(flag.size()), {argv + 2, argv + argc});
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
