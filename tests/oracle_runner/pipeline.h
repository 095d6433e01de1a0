#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "tests/oracle_runner/case.h"

// The oracle's pipeline language (tests/oracle/README.md).

namespace lockstep::oracle {

// The dataset of a list of {"op", parameters}. Throws NotApplicable("needs <op>") for what the data layer lacks.
data::Dataset build_pipeline(const Json& pipeline);

// One element for each string.
data::Dataset text_dataset(std::vector<std::string> values);

// True when `matches` holds for some operation of the pipeline, or of one inside it (zip, concatenate, choose).
bool any_operation(const Json& pipeline, bool (*matches)(const Json& operation));

AutoShardPolicy to_policy(const std::string& name);

// The named functions of elements, of conditions, and of datasets made from an element.
data::Element map_element(const std::string& name, const data::Element& element);
bool holds_for(const std::string& name, const data::Element& element);
data::Dataset dataset_from(const std::string& name, const data::Element& element);
data::Element next_state(const std::string& name, const data::Element& state, const data::Element& element);

// Throw NotApplicable when there is no function of that name.
void require_map_function(const std::string& name);
void require_condition(const std::string& name);
void require_dataset_function(const std::string& name);
void require_state_function(const std::string& name);

}  // namespace lockstep::oracle
