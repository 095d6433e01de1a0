#include "tools/lockstep/ssh.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tools/lockstep/child.h"
#include "tools/lockstep/task_output.h"

namespace lockstep::tool {
namespace {

constexpr std::array<const char*, 11> kOfALogin = {"HOME", "USER", "LOGNAME", "SHELL", "MAIL",   "HOSTNAME",
                                                   "PWD",  "_",    "OLDPWD",  "SHLVL", "DISPLAY"};
constexpr std::array<const char*, 3> kOfASession = {"SSH_", "XDG_", "DBUS_"};

constexpr int kNoSuchCommand = 127;  // a shell's exit status

bool belongs_to_the_login(const std::string& name) {
  return std::ranges::count(kOfALogin, name) > 0 ||
         std::ranges::any_of(kOfASession, [&](const char* prefix) { return name.starts_with(prefix); });
}

std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "lockstep" : path.string();
}

// The program ssh with its pipes. What it says itself (its errors, the other machine's banner) is shown.
class SshTransport : public Transport {
 public:
  SshTransport(const SshOptions& options, const Host& host, const std::string& name, Printer& printer)
      : said_(printer, name, ""),
        process_(ssh_command(options, host), {}, {to_.read_end(), from_.write_end(), errors_.write_end()}),
        link_(from_.read_end(), to_.write_end(), Link::Greeting::kExpected, options.lost_after) {
    to_.close_read_end();
    from_.close_write_end();
    errors_.close_write_end();
    make_nonblocking(errors_.read_end());
  }

  Link& link() override { return link_; }
  void watch(std::vector<pollfd>& watched) const override {
    if (errors_.read_end() >= 0) watched.push_back({errors_.read_end(), POLLIN, 0});
  }
  void work() override {
    const auto banner = link_.take_banner();
    if (!banner.empty()) said_.take(banner);
    char buffer[4 << 10];
    while (errors_.read_end() >= 0) {
      const auto count = read(errors_.read_end(), buffer, sizeof buffer);
      if (count > 0) said_.take({buffer, static_cast<std::size_t>(count)});
      else if (count == 0) errors_.close_read_end();
      else return;
    }
  }
  // The connection is closed a moment before the program ends.
  std::string last_words() override {
    constexpr int kLooks = 20;
    for (int k = 0; k < kLooks && !process_.ending(); ++k) poll(nullptr, 0, 25);
    work();
    said_.finish();
    const auto& lines = said_.last_lines();
    const auto& ending = process_.ending();
    return str(
        ending ? str("ssh ended with ", describe(*ending)) : str(link_.broken()), lines.empty() ? "" : str(": ", lines.back()),
        ending && ending->exit_code == kNoSuchCommand ? "; install Lockstep there, or say where it is with --remote-lockstep"
                                                      : "");
  }

 private:
  TaskOutput said_;
  Pipe to_;
  Pipe from_;
  Pipe errors_;
  Process process_;
  Link link_;
};

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') quoted += "'\\''";
    else quoted += c;
  }
  return quoted + "'";
}

std::vector<std::string> ssh_command(const SshOptions& options, const Host& host) {
  std::vector<std::string> words;
  std::istringstream in(options.command);
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) throw Error(ErrorCode::kInvalidArgument, "--ssh-command is empty; give a program such as ssh");
  words.push_back(host.login);
  words.push_back(str("exec ", shell_quoted(options.remote_lockstep.empty() ? own_path() : options.remote_lockstep),
                      " agent --lost-after ", std::chrono::duration<double>(options.lost_after).count()));
  return words;
}

Variables carried_variables() {
  Variables variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto equals = text.find('=');
    if (equals != std::string::npos && equals > 0 && !belongs_to_the_login(text.substr(0, equals)))
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

std::unique_ptr<RemoteNode> start_by_ssh(const SshOptions& options, const Host& host, Printer& printer) {
  const auto name = str("host ", host.name);
  return std::make_unique<RemoteNode>(name, std::make_unique<SshTransport>(options, host, name, printer), std::nullopt);
}

}  // namespace lockstep::tool
