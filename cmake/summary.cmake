# What was found, printed by scripts/build.sh.
message(STATUS "lockstep: LibTorch ${Torch_VERSION} (${TORCH_INSTALL_PREFIX})")
if(LOCKSTEP_HAS_CUDA)
  message(STATUS "lockstep: devices: CPU, CUDA")
else()
  message(STATUS "lockstep: devices: CPU (this LibTorch has no CUDA)")
endif()
message(STATUS "lockstep: collective engines: local")
