#pragma once

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "tests/support/shell.h"
#include "tests/support/testing.h"

// Starting the command `lockstep` as a user does.

namespace lockstep::testing {

// Runs `lockstep <arguments>`, for a minute at most.
inline Result lockstep_command(const std::string& arguments) {
  return shell(str("timeout 60 ", LOCKSTEP_COMMAND, " ", arguments, " 2>&1"));
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A folder for one test, removed with all that is in it.
class Scratch {
 public:
  Scratch() {
    auto form = ::testing::TempDir() + "lockstep_launcher_XXXXXX";
    path_ = mkdtemp(form.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return str(path_, "/", name); }
  std::string read(const std::string& name) const { return read_file(path(name)); }
  // An executable script.
  std::string script(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << "#!/bin/sh\n" << text;
    chmod(path(name).c_str(), 0700);
    return path(name);
  }

 private:
  std::string path_;
};

// One that has ended and waits for init to notice is not alive.
inline bool is_alive(const std::string& pid) {
  if (pid.empty()) return false;
  const auto status = read_file(str("/proc/", std::stoi(pid), "/status"));
  return !status.empty() && status.find("State:\tZ") == std::string::npos;
}

// Waits until it is so, for 15 seconds at most.
inline bool comes_true(const std::function<bool()>& condition) {
  for (int round = 0; round < 600; ++round) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return false;
}

// The launcher as a process of its own, killed with its owner. Its output goes to a file.
class Launcher {
 public:
  Launcher(const std::vector<std::string>& arguments, const std::string& output) {
    pid_ = fork();
    if (pid_ != 0) return;
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);  // tests may run where these are ignored
    std::freopen(output.c_str(), "w", stdout);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    std::vector<char*> words = {const_cast<char*>("lockstep")};
    for (const auto& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(LOCKSTEP_COMMAND, words.data());
    _exit(127);
  }
  ~Launcher() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  void send(int signal) const { kill(pid_, signal); }
  // Its exit status; -1 when it does not end within 30 seconds, or by a signal.
  int wait() {
    int status = 0;
    for (int round = 0; round < 1200; ++round) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return -1;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace lockstep::testing
