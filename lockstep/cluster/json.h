#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/cluster/cluster_spec.h"

// JSON of the cluster layer. Not for users: it brings a third-party type.

namespace lockstep::internal {

using OrderedJson = nlohmann::ordered_json;

// Throws kInvalidArgument that says where the text stops being JSON. `what` names it.
OrderedJson parse_json(const std::string& text, const std::string& what);

ClusterSpec cluster_spec_from(const OrderedJson& value);
OrderedJson to_json(const ClusterSpec& spec);

}  // namespace lockstep::internal
