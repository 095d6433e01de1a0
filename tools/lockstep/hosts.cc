#include "tools/lockstep/hosts.h"

#include <algorithm>
#include <array>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/cluster/hostlist.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kMostHosts = 4096;
constexpr std::array<const char*, 4> kLoopbackNames = {"localhost", "127.0.0.1", "::1", "localhost.localdomain"};

Error refused(const std::string& part, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument,
               str("--hosts: '", part, "' ", why, "; write host or host:workers, for example a,b:2,n[1-4]"));
}

// At commas that are not inside brackets.
std::vector<std::string> split_parts(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth <= 0) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

int parse_slots(const std::string& word, const std::string& part) {
  constexpr int kMostSlots = 1024;
  const auto slots = whole_number<int>(word);
  if (!slots || *slots < 1 || *slots > kMostSlots)
    throw refused(part, str("has '", word, "' for its workers, which must be 1 to ", kMostSlots));
  return *slots;
}

bool is_good_name(const std::string& name) {
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](unsigned char c) {
    return c > ' ' && c < 0x7f &&
           std::string_view("'\"\\`$&|;<>()[]{}*?!#~^,/").find(static_cast<char>(c)) == std::string::npos;
  });
}

Host make_host(const std::string& login, int slots, const std::string& part) {
  const auto at = login.rfind('@');
  Host host{login, at == std::string::npos ? login : login.substr(at + 1), slots};
  if (!is_good_name(host.name) || !is_good_name(login)) throw refused(part, "is no name of a host");
  return host;
}

// One part: a name, a range of names, or an IPv6 address in brackets; each perhaps with ":workers".
std::vector<Host> parse_part(const std::string& part) {
  const auto bracket = part.rfind(']');
  const auto colon = part.find(':', bracket == std::string::npos ? 0 : bracket);
  const int slots = colon == std::string::npos ? 0 : parse_slots(part.substr(colon + 1), part);
  const auto name = part.substr(0, colon);
  const auto at = name.find('@');
  const auto machine = at == std::string::npos ? name : name.substr(at + 1);
  if (machine.starts_with('[') && machine.ends_with(']') && machine.find(':') != std::string::npos)
    return {make_host(str(name.substr(0, name.size() - machine.size()), machine.substr(1, machine.size() - 2)), slots, part)};
  std::vector<Host> hosts;
  if (name.empty()) throw refused(part, "has no name");
  for (const auto& login : expand_hostlist(name)) hosts.push_back(make_host(login, slots, part));
  return hosts;
}

bool has_loopback_name(const Host& host) { return std::ranges::count(kLoopbackNames, host.name) > 0; }

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  for (const auto& part : split_parts(text))
    for (auto& host : parse_part(part)) {
      if (!seen.insert(host.name).second)
        throw refused(part, str("names ", host.name, " a second time; for several workers there write ", host.name, ":2"));
      if (hosts.size() >= kMostHosts) throw refused(part, str("makes them more than ", kMostHosts));
      hosts.push_back(std::move(host));
    }
  if (hosts.size() > 1 && std::ranges::any_of(hosts, has_loopback_name))
    throw Error(ErrorCode::kInvalidArgument,
                str("--hosts: ", std::ranges::find_if(hosts, has_loopback_name)->name,
                    " means another machine on each of them; write the name by which the others reach it"));
  return hosts;
}

bool is_this_machine(const Host& host) {
  if (host.login != host.name) return false;
  const auto own = own_host_name();
  return has_loopback_name(host) || host.name == own || host.name == own.substr(0, own.find('.'));
}

}  // namespace lockstep::tool
