#pragma once

#include <string>

#include "lockstep/split/dispatch.h"

// What is computed part by part: see Note [split tensors]. A rule does a call, or leaves it as it is where it does not apply.

namespace lockstep::split {

using Rule = void (*)(Call&);

// By the operation's name ("aten::add"), for all its overloads. Null: there is none.
Rule find_rule(const std::string& name);

// pointwise.cc: element k of the result depends on the elements k of the arguments, which are broadcast.
void pointwise(Call& call);
void convert(Call& call);       // to another dtype; to a device: whole
void never_shared(Call& call);  // whether one tensor may become another, as set_data() does: not with a split one
void same_cuts(Call& call);     // computed whole, for its random numbers, and then cut as the argument was

// reductions.cc
void reduce(Call& call);           // sum, mean
void along_dimension(Call& call);  // of one argument, along dimensions that are not cut: softmax, amax, var, ...

// products.cc
void multiply(Call& call);
void linear(Call& call);
void add_multiplied(Call& call);

// windows.cc: what is computed of windows that slide over the last dimensions.
void convolve(Call& call);
void pool(Call& call);

// shapes.cc
void permute(Call& call);
void reshape(Call& call);

// norms.cc
void batch_norm(Call& call);
void layer_norm(Call& call);

}  // namespace lockstep::split
