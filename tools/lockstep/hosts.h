#pragma once

#include <string>
#include <vector>

namespace lockstep::tool {

// One machine of --hosts.
struct Host {
  std::string login = "";  // as ssh takes it: "b", "root@b"
  std::string name = "";   // where the other machines reach it: "b"
  int slots = 0;           // workers there; 0: not said

  bool operator==(const Host&) const = default;
};

// "a,root@b:2,n[1-3]:4,[fe80::1]:2" -> one for each machine. Throws kInvalidArgument that says what is wrong with which part.
std::vector<Host> parse_hosts(const std::string& text);

// True for the machine this runs on, by its own name or a loopback name, unless another login is asked for.
bool is_this_machine(const Host& host);

}  // namespace lockstep::tool
