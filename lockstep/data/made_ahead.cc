#include "lockstep/data/made_ahead.h"

#include "lockstep/data/node.h"

namespace lockstep::data::internal {

Dataset made_ahead(const Dataset& dataset) {
  // Options at the end change nothing of it.
  const Node* node = dataset.node().get();
  while (node->is_only_ahead() && !node->has_own_thread()) node = node->inputs().at(0).get();
  return node->has_own_thread() ? dataset : dataset.prefetch();
}

}  // namespace lockstep::data::internal
