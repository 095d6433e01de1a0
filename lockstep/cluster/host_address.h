#pragma once

#include <string>

#include "lockstep/cluster/address.h"

namespace lockstep {

// What this machine calls itself.
std::string own_host_name();

// The address of this machine on the way to `other`, as a number: what `other` can reach it by. Nothing is sent. Throws
// kNotFound for a host that does not resolve, kUnavailable when there is no way.
std::string address_towards(const Address& other);

// Whether a numeric address means the machine itself.
bool is_loopback(const std::string& address);

}  // namespace lockstep
