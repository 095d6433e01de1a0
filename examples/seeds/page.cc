#include "page.h"

#include <cstdint>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>

namespace seeds {
namespace {

std::string g_block;  // that is running

std::mutex g_mutex;  // replicas expect things, too
std::vector<std::string> g_wrong;

std::string decimal(double number) {
  std::ostringstream out;
  out << number;
  return out.str().find_first_of(".en") == std::string::npos ? out.str() + ".0" : out.str();
}

std::string numbers_of(const torch::Tensor& tensor) {
  if (tensor.dim() == 0)
    return tensor.is_floating_point() ? decimal(tensor.item<double>()) : std::to_string(tensor.item<std::int64_t>());
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.size(0); ++i) text += (i > 0 ? ", " : "") + numbers_of(tensor[i]);
  return text + "]";
}

// "shape=(2, 1), dtype=int64, value=[[0], [1]]"
std::string facts_of(const torch::Tensor& tensor) {
  std::string shape;
  for (const auto size : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  if (tensor.dim() == 1) shape += ",";
  return "shape=(" + shape + "), dtype=" + ls::data::name_dtype({"", tensor}) + ", value=" + numbers_of(tensor.detach().cpu());
}

void complain(const std::source_location& where, const std::string& what) {
  const std::lock_guard lock(g_mutex);
  g_wrong.push_back(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " + g_block + ": " + what);
}

}  // namespace

std::string text_of(const torch::Tensor& tensor) { return "<Tensor: " + facts_of(tensor) + ">"; }
std::string text_of(const std::string& text) { return text; }
std::string text_of(double number) { return decimal(number); }
std::string text_of(int number) { return std::to_string(number); }

std::string text_of(const ls::Variable& variable) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < variable.size(); ++i)
    parts.push_back("<Variable '" + variable.component_names()[i] + "' " + facts_of(variable.components()[i]) + ">");
  if (!variable.is_distributed()) return parts[0];
  std::string text = "MirroredVariable:{\n";
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += "  " + std::to_string(i) + ": " + parts[i] + (i + 1 < parts.size() ? ",\n" : "\n");
  return text + "}";
}

void shows_text(const std::string& text, const std::string& expected, std::source_location where) {
  std::cout << text << "\n";
  if (text != expected) complain(where, "it printed\n" + text + "\nand the page has\n" + expected);
}

void expect(bool claim, std::source_location where) {
  if (!claim) complain(where, "this does not hold");
}

int run_blocks(std::initializer_list<Block> blocks) {
  for (const auto& block : blocks) {
    g_block = block.name;
    std::cout << "-- " << block.name << "\n";
    try {
      block.run();
    } catch (const std::exception& error) {
      complain(std::source_location::current(), error.what());
      break;  // other workers would wait for this one
    }
  }
  for (const auto& wrong : g_wrong) std::cerr << wrong << "\n";
  std::cout << blocks.size() << " blocks, " << g_wrong.size() << " wrong\n";
  return g_wrong.empty() ? 0 : 1;
}

ls::data::Dataset batches_of_ones(const ls::InputContext& input_context) {
  const auto batch_size = input_context.get_per_replica_batch_size(kGlobalBatchSize);
  auto d = ls::data::Dataset::from_tensors(torch::tensor({1.0f}).reshape({1, 1})).repeat().batch(batch_size);
  return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
}

}  // namespace seeds
