#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/file_layer.h"
#include "tests/support/scratch_folder.h"

// A file layer on a real folder that fails, or dies, at the n-th call, and knows what a disk would have after a loss of power.

namespace lockstep::testing {

// The process is gone: nothing that it still tries has an effect.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("crash") {}
};

class CrashingFiles : public FileLayer {
 public:
  enum class End { kError, kCrash };
  // What is found after a crash.
  enum class Loss {
    kNothing,       // the process was killed: the system still has all
    kUnsynced,      // the power was lost, and with it every byte and name that was not brought to the disk
    kUnsyncedData,  // the names were written, the bytes not
    kTorn,          // the names were written, and half of the bytes
  };

  explicit CrashingFiles(std::string root) : root_(std::move(root)), tree_(std::make_shared<Inode>()) {}

  // The call with this number (from 0, from now on) ends so; -1: none does.
  void end_at(int call, End how) {
    calls_ = 0;
    end_at_ = call;
    how_ = how;
  }
  int calls() const { return calls_; }
  bool has_ended() const { return has_ended_; }

  // The folder becomes what a machine that starts again finds.
  void start_again(Loss loss) {
    for (const auto& name : real_files().list(root_)) remove_tree(real_files(), root_ + "/" + name);
    tree_ = survivor(*tree_, loss);
    put(*tree_, root_);
    has_crashed_ = has_ended_ = false;
    end_at_ = -1;
  }

  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    count();
    auto& folder = *at(folder_of(path));
    auto inode = std::make_shared<Inode>();
    inode->is_folder = false;
    auto file = std::make_unique<File>(*this, real_files().create(path, bytes), inode);
    folder.names[name_of(path)] = inode;
    return file;
  }
  void make_folder(const std::string& path) override {
    count();
    real_files().make_folder(path);
    auto& place = at(folder_of(path))->names[name_of(path)];
    if (place == nullptr) place = std::make_shared<Inode>();
  }
  void rename(const std::string& from, const std::string& to) override {
    count();
    real_files().rename(from, to);
    auto moved = at(from);
    at(folder_of(from))->names.erase(name_of(from));
    at(folder_of(to))->names[name_of(to)] = std::move(moved);
  }
  void remove(const std::string& path) override {
    count();
    real_files().remove(path);
    at(folder_of(path))->names.erase(name_of(path));
  }
  std::vector<std::string> list(const std::string& folder) override {
    if (has_crashed_) throw Crash();
    return real_files().list(folder);
  }
  void sync_folder(const std::string& path) override {
    count();
    auto& folder = *at(path);
    folder.synced_names = folder.names;
  }

 private:
  struct Inode {
    bool is_folder = true;
    std::string data;    // as the system has it
    std::string synced;  // as the disk has it
    std::map<std::string, std::shared_ptr<Inode>> names;
    std::map<std::string, std::shared_ptr<Inode>> synced_names;
  };

  class File : public WritableFile {
   public:
    File(CrashingFiles& layer, std::unique_ptr<WritableFile> real, std::shared_ptr<Inode> inode)
        : layer_(layer), real_(std::move(real)), inode_(std::move(inode)) {}
    void append(std::span<const std::byte> bytes) override {
      layer_.count();
      real_->append(bytes);
      inode_->data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void sync() override {
      layer_.count();
      inode_->synced = inode_->data;
    }

   private:
    CrashingFiles& layer_;
    std::unique_ptr<WritableFile> real_;
    std::shared_ptr<Inode> inode_;
  };

  void count() {
    if (has_crashed_) throw Crash();
    if (calls_++ != end_at_) return;
    has_ended_ = true;
    if (how_ == End::kError) throw Error(ErrorCode::kUnavailable, "the disk is full (a test)");
    has_crashed_ = true;
    throw Crash();
  }

  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  // What stands at a path under the root, or the root.
  std::shared_ptr<Inode> at(const std::string& path) {
    auto inode = tree_;
    for (std::size_t begin = root_.size() + 1; begin < path.size();) {
      const auto end = std::min(path.find('/', begin), path.size());
      inode = inode->names.at(path.substr(begin, end - begin));
      begin = end + 1;
    }
    return inode;
  }

  static std::shared_ptr<Inode> survivor(const Inode& inode, Loss loss) {
    auto left = std::make_shared<Inode>();
    left->is_folder = inode.is_folder;
    left->data = loss == Loss::kNothing ? inode.data : inode.synced;
    if (loss == Loss::kTorn) left->data = inode.data.substr(0, (inode.synced.size() + inode.data.size()) / 2);
    left->synced = left->data;
    for (const auto& [name, child] : loss == Loss::kUnsynced ? inode.synced_names : inode.names)
      left->names[name] = survivor(*child, loss);
    left->synced_names = left->names;
    return left;
  }

  static void put(const Inode& inode, const std::string& path) {
    if (!inode.is_folder) {
      std::ofstream(path, std::ios::binary) << inode.data;
      return;
    }
    mkdir(path.c_str(), 0777);
    for (const auto& [name, child] : inode.names) put(*child, path + "/" + name);
  }

  const std::string root_;
  std::shared_ptr<Inode> tree_;
  int calls_ = 0;
  int end_at_ = -1;
  End how_ = End::kError;
  bool has_ended_ = false;
  bool has_crashed_ = false;
};

}  // namespace lockstep::testing
