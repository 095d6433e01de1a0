#include "lockstep/collective/engine_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <optional>
#include <ranges>
#include <system_error>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using MakeEngine = Transport*(const EngineSetup&);
using NameDevice = void(int device, std::string& name);
constexpr const char* kMakeEngine = "lockstep_make_engine";
constexpr const char* kNameDevice = "lockstep_name_device";

// Where plugins may lie, the best place first.
std::vector<fs::path> plugin_folders() {
  if (const auto folder = Environment().get("LOCKSTEP_ENGINES")) return {fs::path(*folder)};
  std::vector<fs::path> folders;
  std::error_code ignored;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&make_engine), &here) != 0 && here.dli_fname != nullptr)
    folders.push_back(fs::absolute(here.dli_fname, ignored).parent_path() / "lockstep");
  // A program that has Lockstep linked in stands in bin/, beside lib/.
  const auto program = fs::read_symlink("/proc/self/exe", ignored);
  if (!ignored) folders.push_back(program.parent_path().parent_path() / "lib" / "lockstep");
  return folders;
}

struct Known {
  const char* packages;  // what brings the engine to a machine that lacks it
  int flags;             // for dlopen
};

const std::map<std::string, Known>& known_engines() {
  // LibTorch may export a Gloo of its own, of another age, which must not take the place of the plugin's. MPI has no such
  // double, and must not be kept apart: it writes `environ`, whose place depends on the program. NCCL keeps one interface
  // over its ages: the copy that LibTorch has loaded serves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // which refuse to keep libraries apart
  constexpr int kApart = 0;
#else
  constexpr int kApart = RTLD_DEEPBIND;
#endif
  static const std::map<std::string, Known> engines{
      {"gloo", {"libgloo-dev (Debian)", kApart}},
      {"mpi", {"libopenmpi-dev and openmpi-bin (Debian)", 0}},
      {"nccl", {"NCCL (NVIDIA's libnccl-dev, or the Python package nvidia-nccl-cu13) and a LibTorch with CUDA", 0}}};
  return engines;
}

std::string advice(const std::string& engine) {
  const auto& engines = known_engines();
  const auto found = engines.find(engine);
  if (found == engines.end()) return str("engines that Lockstep knows: ", join(", ", std::views::keys(engines)));
  return str("install ", found->second.packages,
             " and build Lockstep again, or set LOCKSTEP_ENGINES to the folder that has it");
}

// The first file of that name; nothing, and `why`, when there is none.
std::optional<std::string> find_plugin(const std::string& engine, std::string& why) {
  const auto file = str("engine_", engine, ".so");
  std::vector<std::string> places;
  for (const auto& folder : plugin_folders()) {
    std::error_code ignored;
    if (engine.find('/') == std::string::npos && fs::exists(folder / file, ignored)) return (folder / file).string();
    places.push_back(folder.string());
  }
  why = str("there is no ", file, " in ", join(" or ", places), "; ", advice(engine));
  return std::nullopt;
}

// A function of the plugin; nothing, and `why`, when there is no such plugin or it cannot be used here. A plugin stays
// open: the code of its engines, and the threads of the library behind it, live as long as the process.
template <typename Function>
Function* open_plugin(const std::string& engine, const char* function, std::string& why) {
  const auto plugin = find_plugin(engine, why);
  if (!plugin) return nullptr;
  const auto known = known_engines().find(engine);
  void* handle = dlopen(plugin->c_str(), RTLD_NOW | RTLD_LOCAL | (known == known_engines().end() ? 0 : known->second.flags));
  void* entry = handle == nullptr ? nullptr : dlsym(handle, function);
  if (entry == nullptr) why = str(*plugin, " cannot be used (", dlerror(), "); ", advice(engine));
  return reinterpret_cast<Function*>(entry);
}

}  // namespace

std::unique_ptr<Transport> make_engine(const std::string& engine, const EngineSetup& setup) {
  if (setup.size < 1 || setup.rank < 0 || setup.rank >= setup.size)
    throw Error(ErrorCode::kInvalidArgument, str("engine ", engine, ": there is no rank ", setup.rank, " of ", setup.size));
  std::string why;
  auto* const make = open_plugin<MakeEngine>(engine, kMakeEngine, why);
  if (make == nullptr) throw Error(ErrorCode::kUnimplemented, str("engine ", engine, ": ", why));
  return std::unique_ptr<Transport>(make(setup));
}

bool has_engine(const std::string& engine, std::string* why) {
  std::string reason;
  const bool is_there = open_plugin<MakeEngine>(engine, kMakeEngine, reason) != nullptr;
  if (why != nullptr) *why = reason;
  return is_there;
}

std::string name_device(const std::string& engine, int device) {
  std::string why;
  auto* const name = open_plugin<NameDevice>(engine, kNameDevice, why);
  if (name == nullptr) throw Error(ErrorCode::kUnimplemented, str("engine ", engine, ": ", why));
  std::string text;
  name(device, text);
  return text;
}

}  // namespace lockstep
