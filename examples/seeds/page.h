#pragma once

#include <lockstep/lockstep.h>

#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

// What the programs of this folder share. Each runs the code blocks of one page of TensorFlow's documentation, by their
// numbers in docs/seeds.md, prints what they give, and ends with 0 when that is what the page says.

namespace seeds {

namespace ls = lockstep;

// A value as these programs print it: a tensor on one line, with shape and dtype, a distributed value replica by replica.
std::string text_of(const torch::Tensor& tensor);
std::string text_of(const ls::Variable& variable);
std::string text_of(const std::string& text);
std::string text_of(double number);
std::string text_of(int number);
template <typename T>
std::string text_of(const ls::PerReplica<T>& value);
template <typename T>
std::string text_of(const std::vector<T>& values);

// One block of a page.
struct Block {
  std::string name;  // "strategy_01"
  std::function<void()> run;
};

// Runs the blocks in order. The exit status of the program: 0 when all of them did what their page says.
int run_blocks(std::initializer_list<Block> blocks);

// Inside a block. Prints `text`, which must be `expected`.
void shows_text(const std::string& text, const std::string& expected, std::source_location where);
template <typename T>
void shows(const T& value, const std::string& expected, std::source_location where = std::source_location::current()) {
  shows_text(text_of(value), expected, where);
}
// Inside a block: what must hold, where the page shows no output.
void expect(bool claim, std::source_location where = std::source_location::current());

// The input function that several pages show: ones without end, in batches of a replica's part of eight.
constexpr std::int64_t kGlobalBatchSize = 8;
ls::data::Dataset batches_of_ones(const ls::InputContext& input_context);

template <typename T>
std::string text_of(const ls::PerReplica<T>& value) {
  std::string text = "PerReplica:{\n";
  for (std::size_t replica = 0; replica < value.size(); ++replica)
    text += "  " + std::to_string(replica) + ": " + text_of(value[replica]) + (replica + 1 < value.size() ? ",\n" : "\n");
  return text + "}";
}

template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + text_of(values[i]);
  return text + "]";
}

}  // namespace seeds
