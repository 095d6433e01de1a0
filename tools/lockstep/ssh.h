#pragma once

#include <string>
#include <vector>

#include "tools/lockstep/hosts.h"
#include "tools/lockstep/printer.h"
#include "tools/lockstep/remote_node.h"

namespace lockstep::tool {

// `ServerAlive...`: a lost link is noticed within 15 s.
inline constexpr const char* kDefaultSsh =
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

struct SshOptions {
  std::string command = kDefaultSsh;  // words between spaces; the login and one remote command are added
  std::string remote_lockstep = "";   // where the command `lockstep` is there; empty: where it is here
  std::chrono::milliseconds lost_after = kLostAfter;
};

// A text as one word of a shell's command.
std::string shell_quoted(const std::string& text);

// The whole command that starts a node on a host.
std::vector<std::string> ssh_command(const SshOptions& options, const Host& host);

// This process's variables that a task on another machine gets too: all but those of a login (HOME, USER, SSH_..., ...).
Variables carried_variables();

// Starts a node on a host. Throws kNotFound when there is no such ssh.
std::unique_ptr<RemoteNode> start_by_ssh(const SshOptions& options, const Host& host, Printer& printer);

}  // namespace lockstep::tool
