// The CUDA driver's functions, found when they are first needed: nothing here links to the driver,
// so that the extension loads on a machine without one.
#pragma once
#include <cuda.h>

#include <string>

namespace sdm::plancap::cuda {

// member, function, the driver version whose signature cuda.h declares it with.
#define SDM_CUDA_FUNCTIONS(X)                                        \
  X(init, cuInit, 2000)                                              \
  X(error_name, cuGetErrorName, 6000)                                \
  X(error_string, cuGetErrorString, 6000)                            \
  X(device_count, cuDeviceGetCount, 2000)                            \
  X(device_get, cuDeviceGet, 2000)                                   \
  X(device_name, cuDeviceGetName, 2000)                              \
  X(device_uuid, cuDeviceGetUuid, 11040)                             \
  X(device_attribute, cuDeviceGetAttribute, 2000)                    \
  X(primary_context_retain, cuDevicePrimaryCtxRetain, 7000)          \
  X(context_push, cuCtxPushCurrent, 4000)                            \
  X(context_pop, cuCtxPopCurrent, 4000)                              \
  X(context_current, cuCtxGetCurrent, 4000)                          \
  X(context_device, cuCtxGetDevice, 2000)                            \
  X(stream_create, cuStreamCreate, 2000)                             \
  X(stream_context, cuStreamGetCtx, 9020)                            \
  X(stream_capturing, cuStreamIsCapturing, 10000)                    \
  X(stream_wait_event, cuStreamWaitEvent, 3020)                      \
  X(event_create, cuEventCreate, 2000)                               \
  X(event_record, cuEventRecord, 2000)                               \
  X(event_query, cuEventQuery, 2000)                                 \
  X(event_destroy, cuEventDestroy, 4000)                             \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010) \
  X(begin_capture_to_graph, cuStreamBeginCaptureToGraph, 12030)      \
  X(capture_info, cuStreamGetCaptureInfo, 12030)                     \
  X(end_capture, cuStreamEndCapture, 10000)                          \
  X(library_load, cuLibraryLoadData, 12000)                          \
  X(library_kernel, cuLibraryGetKernel, 12000)                       \
  X(kernel_function, cuKernelGetFunction, 12000)                     \
  X(kernel_attribute, cuKernelGetAttribute, 12000)                   \
  X(kernel_set_attribute, cuKernelSetAttribute, 12000)               \
  X(kernel_param_info, cuKernelGetParamInfo, 12040)                  \
  X(launch, cuLaunchKernelEx, 11060)                                 \
  X(tensor_map_encode, cuTensorMapEncodeTiled, 12000)                \
  X(graph_create, cuGraphCreate, 10000)                              \
  X(graph_destroy, cuGraphDestroy, 10000)                            \
  X(graph_add_kernel, cuGraphAddKernelNode, 12000)                   \
  X(graph_set_attribute, cuGraphKernelNodeSetAttribute, 11000)       \
  X(graph_add_dependencies, cuGraphAddDependencies, 12030)           \
  X(graph_instantiate, cuGraphInstantiateWithFlags, 11040)           \
  X(graph_exec_set_kernel, cuGraphExecKernelNodeSetParams, 12000)    \
  X(graph_exec_destroy, cuGraphExecDestroy, 10000)                   \
  X(graph_upload, cuGraphUpload, 11010)                              \
  X(graph_launch, cuGraphLaunch, 10000)

struct Driver {
#define SDM_CUDA_MEMBER(member, function, version) decltype(&::function) member = nullptr;
  SDM_CUDA_FUNCTIONS(SDM_CUDA_MEMBER)
#undef SDM_CUDA_MEMBER
};

// Loads and initializes the driver on the first call, by any thread. Throws kCuda when there is no
// usable driver; the reason is the same on every call.
const Driver& driver();

// Empty when driver() can be called, else why not.
const std::string& driver_unavailable();

}  // namespace sdm::plancap::cuda
