#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/variable/named_tensors.h"

// Note [files of parameter servers]
// 1. Server 1 writes weights-PART-ps-1.safetensors: the values of its variables under their own names. A variable that is
//    divided is one tensor for each part, "NAME/part_2". The file's metadata "variables" is JSON with, for each tensor, the
//    whole variable's name ("of") and shape, the part's first row in it, its version, how it began, its optimizer ("rule") and
//    that one's numbers ("numbers": steps, learning rate).
// 2. It writes state-PART-ps-1.safetensors when its optimizers have tensors: "exp_avg/NAME".
// 3. The servers write at the same time, each while no request changes anything there, and tell the coordinator sizes and
//    checksums, which go into the manifest. See Note [checkpoint commit].
// 4. Who restores looks up whole variables, and takes rows from whichever files have them: servers that are more or fewer, or
//    that divide otherwise, and one process without any. A file without "variables" has whole ones, as any file of weights.

namespace lockstep::internal {

inline constexpr const char* kVariablesKey = "variables";
inline constexpr const char* kWeightsPrefix = "weights";
inline constexpr const char* kStatePrefix = "state";

// What a file says of one tensor.
struct SavedPart {
  ps::Description description = {};
  std::uint64_t version = 0;
  std::vector<std::pair<std::string, double>> numbers = {};  // of its rule
};

// "table" of "table/part_2".
std::string whole_name(const ps::Description& description);

// The text of "variables", and back by tensor. parse throws kDataLoss; dtypes and shapes are the tensors'.
std::string describe_parts(const std::vector<SavedPart>& parts);
std::map<std::string, SavedPart> parse_parts(const std::string& text, const std::string& what);

// The variables of some files. Tensors are views of them.
class SavedVariables {
 public:
  struct Slice {
    SavedPart saved = {};
    at::Tensor value;
    NamedTensors state = {};
    std::int64_t first_row = 0;
    std::int64_t rows = 1;  // of a variable without dimensions: one
  };
  struct Whole {
    std::vector<std::int64_t> shape = {};
    std::vector<Slice> slices = {};  // in order
  };

  // Whether the files have every row, or those of some servers.
  enum class Rows { kAll, kSome };

  // By their names. Throws kDataLoss when rows come twice, or are missing.
  explicit SavedVariables(const std::map<std::string, OpenedCheckpoint::File>& files, Rows rows = Rows::kAll);

  const std::map<std::string, Whole>& all() const noexcept { return all_; }
  const Whole* find(const std::string& name) const;

  // In the memory of this process: views where one file has all of it.
  NamedTensors joined() const;

 private:
  void add_values(const std::string& file_name, const OpenedCheckpoint::File& file);
  void add_state(const OpenedCheckpoint::File& file);
  void put_in_order(Rows rows);

  std::map<std::string, Whole> all_;
};

// Calls fn(slice, its row, the wanted row, how many) for the slices that have rows of [first, first + count), in order.
using OnRows = std::function<void(const SavedVariables::Slice& slice, std::int64_t from, std::int64_t to, std::int64_t rows)>;
void for_each_slice(const SavedVariables::Whole& whole, std::int64_t first, std::int64_t count, const OnRows& fn);

// Rows of a tensor; all of one without dimensions.
at::Tensor rows_of(const at::Tensor& tensor, std::int64_t first, std::int64_t count);

}  // namespace lockstep::internal
