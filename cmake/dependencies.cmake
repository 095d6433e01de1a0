# What Lockstep is built on. ARCHITECTURE.md says why each was chosen.
find_package(Torch REQUIRED)
# Tests on a GPU are built when this LibTorch has CUDA.
if(TARGET torch_cuda)
  set(LOCKSTEP_HAS_CUDA ON)
else()
  set(LOCKSTEP_HAS_CUDA OFF)
endif()
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
# Files of others: each of these may be missing, and what needs it then says what to install.
# NumPy's .npz archives.
set(LOCKSTEP_HAS_MINIZIP OFF)
find_library(LOCKSTEP_MINIZIP_LIBRARY minizip)
find_path(LOCKSTEP_MINIZIP_INCLUDE minizip/unzip.h)
if(LOCKSTEP_MINIZIP_LIBRARY AND LOCKSTEP_MINIZIP_INCLUDE)
  set(LOCKSTEP_HAS_MINIZIP ON)
endif()
# JPEG images.
set(LOCKSTEP_HAS_TURBOJPEG OFF)
find_library(LOCKSTEP_TURBOJPEG_LIBRARY turbojpeg)
find_path(LOCKSTEP_TURBOJPEG_INCLUDE turbojpeg.h)
if(LOCKSTEP_TURBOJPEG_LIBRARY AND LOCKSTEP_TURBOJPEG_INCLUDE)
  # The limit for images of very many scans came with 2.1.
  file(STRINGS ${LOCKSTEP_TURBOJPEG_INCLUDE}/turbojpeg.h LOCKSTEP_TURBOJPEG_FITS REGEX "TJFLAG_LIMITSCANS")
  if(LOCKSTEP_TURBOJPEG_FITS)
    set(LOCKSTEP_HAS_TURBOJPEG ON)
  endif()
endif()
# PNG images.
set(LOCKSTEP_HAS_PNG OFF)
find_package(PNG 1.6 QUIET)
if(PNG_FOUND)
  set(LOCKSTEP_HAS_PNG ON)
  set(LOCKSTEP_PNG_LIBRARY PNG::PNG)
  set(LOCKSTEP_PNG_INCLUDE ${PNG_INCLUDE_DIRS})
endif()
# The command `lockstep`.
find_package(CLI11 CONFIG QUIET)
if(CLI11_FOUND)
  set(LOCKSTEP_HAS_CLI11 ON)
else()
  set(LOCKSTEP_HAS_CLI11 OFF)
endif()
# Clusters of several machines need gRPC; without it everything for one machine is built.
# (gRPC's CMake files stop the configuration when a program that they name is missing, so look first.)
set(LOCKSTEP_HAS_GRPC OFF)
find_program(LOCKSTEP_GRPC_PLUGIN grpc_cpp_plugin)
find_library(LOCKSTEP_GRPC_LIBRARY grpc++)
if(LOCKSTEP_GRPC_PLUGIN AND LOCKSTEP_GRPC_LIBRARY)
  find_package(Protobuf QUIET)
  find_package(gRPC CONFIG QUIET)
endif()
if(Protobuf_FOUND AND gRPC_FOUND AND TARGET gRPC::grpc_cpp_plugin)
  # The protobuf that stands beside gRPC: a LibTorch wheel brings another one, older than the headers.
  get_target_property(grpc_plugin gRPC::grpc_cpp_plugin LOCATION)
  get_target_property(grpc_library gRPC::grpc++ LOCATION)
  get_filename_component(grpc_programs ${grpc_plugin} DIRECTORY)
  get_filename_component(grpc_libraries ${grpc_library} DIRECTORY)
  find_program(LOCKSTEP_PROTOC protoc PATHS ${grpc_programs} NO_DEFAULT_PATH)
  find_library(LOCKSTEP_PROTOBUF protobuf PATHS ${grpc_libraries} NO_DEFAULT_PATH)
  if(LOCKSTEP_PROTOC AND LOCKSTEP_PROTOBUF)
    set(LOCKSTEP_HAS_GRPC ON)
  endif()
endif()
# Engines that move bytes between machines; each is a plugin (lockstep/collective/engine_plugin.h).
set(LOCKSTEP_HAS_GLOO OFF)
find_library(LOCKSTEP_GLOO_LIBRARY gloo)
if(LOCKSTEP_GLOO_LIBRARY)
  # The headers that stand beside the library; a Gloo much younger than Debian's has other interfaces.
  get_filename_component(gloo_libraries ${LOCKSTEP_GLOO_LIBRARY} DIRECTORY)
  find_path(LOCKSTEP_GLOO_INCLUDE gloo/rendezvous/context.h HINTS ${gloo_libraries}/../include)
endif()
if(LOCKSTEP_GLOO_LIBRARY AND LOCKSTEP_GLOO_INCLUDE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${LOCKSTEP_GLOO_INCLUDE})
  set(CMAKE_REQUIRED_LIBRARIES ${LOCKSTEP_GLOO_LIBRARY} Threads::Threads)
  check_cxx_source_compiles("#include <gloo/rendezvous/context.h>
    #include <gloo/rendezvous/store.h>
    #include <gloo/transport/tcp/device.h>
    #include <gloo/transport/unbound_buffer.h>
    void connect(gloo::rendezvous::Context& context, gloo::rendezvous::Store& store) {
      auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(\"127.0.0.1\"));
      context.connectFullMesh(store, device);
      context.createUnboundBuffer(nullptr, 0)->abortWaitRecv();
    }
    int main() {}" LOCKSTEP_GLOO_FITS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(LOCKSTEP_GLOO_FITS)
    set(LOCKSTEP_HAS_GLOO ON)
  endif()
endif()
set(LOCKSTEP_HAS_MPI OFF)
enable_language(C)
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
  set(LOCKSTEP_HAS_MPI ON)
endif()
# NCCL for tensors on GPUs: the one beside LibTorch (Python packages), which is loaded anyway, else the system's.
set(LOCKSTEP_HAS_NCCL OFF)
if(LOCKSTEP_HAS_CUDA)
  set(packages ${TORCH_INSTALL_PREFIX}/../nvidia)
  find_library(LOCKSTEP_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${packages}/nccl/lib)
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${packages}/nccl/include)
  find_package(CUDAToolkit QUIET)
  if(LOCKSTEP_NCCL_LIBRARY AND LOCKSTEP_NCCL_INCLUDE AND TARGET CUDA::cudart)
    # Communicators that do not block came with 2.14.
    file(STRINGS ${LOCKSTEP_NCCL_INCLUDE}/nccl.h LOCKSTEP_NCCL_FITS REGEX "ncclCommInitRankConfig")
    if(LOCKSTEP_NCCL_FITS)
      set(LOCKSTEP_HAS_NCCL ON)
    endif()
  endif()
endif()
if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
endif()
