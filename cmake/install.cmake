# find_package(lockstep CONFIG) gives lockstep::lockstep with LibTorch behind it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The library finds LibTorch beside it or where it was built against.
set_target_properties(lockstep PROPERTIES INSTALL_RPATH "$ORIGIN;${TORCH_INSTALL_PREFIX}/lib")
install(TARGETS lockstep LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(engine gloo mpi nccl)
  if(TARGET engine_${engine})
    install(TARGETS engine_${engine} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
  endif()
endforeach()
if(TARGET lockstep_command)
  set_target_properties(lockstep_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${TORCH_INSTALL_PREFIX}/lib")
  install(TARGETS lockstep_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        REGEX "/lockstep/(cluster/(json|rpc|coordination_service)|ps/rpc_(buffers|sharing)|train/options_text)\\.h$" EXCLUDE PATTERN "engines" EXCLUDE)
configure_package_config_file(cmake/lockstep-config.cmake.in ${CMAKE_BINARY_DIR}/lockstep-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstep-config.cmake ${CMAKE_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
