#include <cstdlib>
#include <set>

#include "lockstep/base/str.h"
#include "lockstep/cluster/address.h"
#include "tests/fuzz/fuzz.h"
#include "tools/lockstep/hosts.h"

// --hosts: no two are one, none is an option of ssh or has anything in it that a shell reads, each is an address's host.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    std::set<std::string> names;
    for (const auto& host : lockstep::tool::parse_hosts(text)) {
      if (host.slots < 0 || host.login.starts_with('-') || !host.login.ends_with(host.name)) std::abort();
      if (host.login.find_first_of(" \t\r\n'\"\\`$&|;<>()*?!#") != std::string::npos) std::abort();
      if (!names.insert(host.name).second) std::abort();
      try {
        const lockstep::Address address{host.name, 1};
        if (!(lockstep::Address::parse(lockstep::str(address), "a host") == address)) std::abort();
      } catch (const lockstep::Error&) {
        std::abort();
      }
      lockstep::tool::is_this_machine(host);
    }
  });
}
