# Device code: csrc/kernels/<room>/<kernel>/inst/<entry>.cu -> <entry>.fatbin, each scanned and hashed, and
# a table of them all for the extension (csrc/plancap/run/device_table.h). No GPU is needed.

set(SDM_CUDA_ARCHS "80;90a" CACHE STRING "Compute capabilities to compile machine code for")
set(SDM_CUDA_PTX "80;90" CACHE STRING "Compute capabilities to keep PTX of, for newer GPUs")

# Kernels whose instructions only one architecture has: compiled for it alone, without PTX.
set(SDM_ONLY_bf16_linear 90a)
set(SDM_ONLY_bf16_linear_group 90a)

# Stops at a name that this nvcc does not know.
function(sdm_check_archs option)
  execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-arch
                  OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  foreach(arch IN LISTS ${option})
    string(REGEX MATCH "^([0-9]+)[af]?$" matched "${arch}")
    if(NOT matched OR NOT CMAKE_MATCH_1 IN_LIST known)
      message(FATAL_ERROR "${option}: '${arch}' is no architecture of nvcc "
                          "${CUDAToolkit_VERSION}, which knows ${known}")
    endif()
    if(CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "${option}: expected 80 or later, got '${arch}'")
    endif()
  endforeach()
endfunction()

# Sets `flags` to the -gencode options of a kernel and `virtual` to the names of its PTX files.
function(sdm_gencode kernel flags virtual)
  set(options)
  set(names)
  foreach(arch IN LISTS SDM_CUDA_ARCHS)
    if(DEFINED SDM_ONLY_${kernel} AND NOT arch STREQUAL SDM_ONLY_${kernel})
      continue()
    endif()
    list(APPEND options -gencode "arch=compute_${arch},code=sm_${arch}")
    list(APPEND names compute_${arch})
  endforeach()
  if(NOT DEFINED SDM_ONLY_${kernel})
    foreach(arch IN LISTS SDM_CUDA_PTX)
      list(APPEND options -gencode "arch=compute_${arch},code=compute_${arch}")
      list(APPEND names compute_${arch})
    endforeach()
  endif()
  list(REMOVE_DUPLICATES names)
  set(${flags} "${options}" PARENT_SCOPE)
  set(${virtual} "${names}" PARENT_SCOPE)
endfunction()

# Compiles every instance into `folder` and adds the generated table to `target`.
function(sdm_add_device_code target folder)
  sdm_check_archs(SDM_CUDA_ARCHS)
  sdm_check_archs(SDM_CUDA_PTX)
  set(work ${CMAKE_CURRENT_BINARY_DIR}/device)
  set(compile ${CMAKE_CURRENT_SOURCE_DIR}/tools/dev/compile_device_code.py)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/csrc/kernels/*/*/inst/*.cu)
  set(images)
  set(lines)
  foreach(source IN LISTS sources)
    get_filename_component(entry ${source} NAME_WE)
    string(REGEX REPLACE ".*/([^/]*)/inst/[^/]*" "\\1" kernel ${source})
    sdm_gencode(${kernel} flags virtual)
    if(NOT flags)
      list(APPEND left_out ${kernel})
      continue()
    endif()
    set(image ${folder}/${entry}.fatbin)
    set(keep ${work}/${entry})
    list(LENGTH virtual count)
    set(ptx)
    foreach(name IN LISTS virtual)
      # With a single target nvcc leaves its name out.
      if(count EQUAL 1)
        list(APPEND ptx ${keep}/${entry}.ptx)
      else()
        list(APPEND ptx ${keep}/${entry}.${name}.ptx)
      endif()
    endforeach()
    file(MAKE_DIRECTORY ${keep} ${folder})
    add_custom_command(
      OUTPUT ${image}
      BYPRODUCTS ${ptx} ${keep}/resources.json
      COMMAND ${Python_EXECUTABLE} ${compile} ${keep}/resources.json ${CUDAToolkit_NVCC_EXECUTABLE}
              -fatbin -std=c++20 -O3 -fmad=false ${flags}
              -I${CMAKE_CURRENT_SOURCE_DIR}/csrc --keep --keep-dir ${keep}
              -MD -MF ${keep}/${entry}.d -o ${image} ${source}
      DEPENDS ${source} ${compile}
      DEPFILE ${keep}/${entry}.d
      COMMENT "Device code ${entry}"
      VERBATIM)
    list(APPEND images ${image})
    list(JOIN ptx ";" ptx)
    string(APPEND lines "${kernel};${image};${ptx}\n")
  endforeach()
  foreach(kernel IN LISTS left_out)
    message(WARNING "${kernel}: left out, SDM_CUDA_ARCHS has no ${SDM_ONLY_${kernel}}")
  endforeach()

  file(GENERATE OUTPUT ${work}/images.txt CONTENT "${lines}")
  set(tools ${CMAKE_CURRENT_SOURCE_DIR}/tools/dev)
  add_custom_command(
    OUTPUT ${work}/device_table.cpp ${folder}/device_images.json
    COMMAND ${Python_EXECUTABLE} ${tools}/device_table.py --nvcc ${CUDAToolkit_VERSION}
            --json ${folder}/device_images.json --cpp ${work}/device_table.cpp ${work}/images.txt
    DEPENDS ${images} ${work}/images.txt ${tools}/device_table.py ${tools}/scan_device_code.py
    COMMENT "Scanning and hashing device code"
    VERBATIM)
  target_sources(${target} PRIVATE ${work}/device_table.cpp)
  install(FILES ${images} ${folder}/device_images.json DESTINATION sdm_runtime/device)
endfunction()
