#include "lockstep/data/node.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/crc32c.h"

namespace lockstep::data::internal {
namespace {

void append_tree(std::string& text, const Node& node, const std::string& indent) {
  text += indent + node.describe() + "\n";
  for (const auto& input : node.inputs()) append_tree(text, *input, indent + "  ");
}

}  // namespace

void for_each_node(const Node& node, const std::function<void(const Node&)>& visit) {
  visit(node);
  for (const auto& input : node.inputs()) for_each_node(*input, visit);
}

void put_passes(PositionWriter& to, const Node& node) {
  for_each_node(node, [&](const Node& one) { one.save_passes(to); });
}

void take_passes(PositionReader& from, const Node& node) {
  for_each_node(node, [&](const Node& one) { one.restore_passes(from); });
}

void put_pipeline(PositionWriter& to, const Node& node) {
  const auto text = describe_pipeline(node);
  to.put(std::int64_t{crc32c(text.data(), text.size())});
  put_passes(to, node);
}

void take_pipeline(PositionReader& from, const Node& node) {
  const auto text = describe_pipeline(node);
  if (from.number() != std::int64_t{crc32c(text.data(), text.size())})
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str(
            "the saved position is of another pipeline, of other files, or of another kind of iterator (a dataset's own, a "
            "distributed one); this one is\n",
            text, "restore it into an iterator of the dataset it was saved from"));
  take_passes(from, node);
}

std::string describe_pipeline(const Node& node) {
  std::string text;
  append_tree(text, node, "");
  return text;
}

}  // namespace lockstep::data::internal
