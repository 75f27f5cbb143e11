// Devices, contexts, streams and libraries.
#include <cstring>

#include "fake_state.h"

using fake::Context;
using fake::Kernel;
using fake::Library;
using fake::state;
using fake::Stream;

bool fake::relaxed() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuThreadExchangeStreamCaptureMode(&mode);
  const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  cuThreadExchangeStreamCaptureMode(&mode);
  return relaxed;
}

extern "C" {

CUresult cuInit(unsigned) {
  FAKE_CALL(cuInit);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
          : error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "a fake failure";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = fake::kNumDevices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  if (index < 0 || index >= fake::kNumDevices) return CUDA_ERROR_INVALID_DEVICE;
  *device = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (char& byte : uuid->bytes) byte = static_cast<char>(0x10 + device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  const fake::Device& self = fake::kDevices[device];
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = self.major;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = self.minor;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = self.shared_optin;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_CALL(cuDevicePrimaryCtxRetain);
  *context = reinterpret_cast<CUcontext>(&state().contexts[device]);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  fake::context_stack().push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  auto& stack = fake::context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  auto& stack = fake::context_stack();
  *context = stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (fake::context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = fake::context_stack().back()->device;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FAKE_CALL(cuStreamCreate);
  if (fake::context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = reinterpret_cast<CUstream>(new Stream{fake::context_stack().back()});
  fake::log("{\"call\":\"stream\",\"flags\":" + std::to_string(flags) +
            ",\"relaxed\":" + (fake::relaxed() ? "true" : "false") + "}");
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CALL(cuStreamGetCtx);
  *context = reinterpret_cast<CUcontext>(reinterpret_cast<Stream*>(stream)->context);
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(current, *mode);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  FAKE_CALL(cuLibraryLoadData);
  // A fat binary: its header's size, the size of what follows, and each part's kind and target.
  const char* bytes = static_cast<const char*>(code);
  uint64_t body;
  memcpy(&body, bytes + 8, sizeof(body));
  std::string parts;
  for (uint64_t at = 16; at < 16 + body;) {
    uint16_t kind;
    uint32_t header, capability;
    uint64_t payload;
    memcpy(&kind, bytes + at, 2);
    memcpy(&header, bytes + at + 4, 4);
    memcpy(&payload, bytes + at + 8, 8);
    memcpy(&capability, bytes + at + 28, 4);
    parts += (parts.empty() ? "" : ",") + std::string("[") + std::to_string(kind) + "," +
             std::to_string(capability) + "]";
    at += header + payload;
  }
  auto* loaded = new Library;
  for (const auto& [name, kernel] : state().declared) {
    loaded->kernels[name] = std::make_unique<Kernel>(kernel);
  }
  *library = reinterpret_cast<CUlibrary>(loaded);
  fake::log(
      "{\"call\":\"load\",\"device\":" + std::to_string(fake::context_stack().back()->device) +
      ",\"parts\":[" + parts + "],\"relaxed\":" + (fake::relaxed() ? "true" : "false") + "}");
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  auto& kernels = reinterpret_cast<Library*>(library)->kernels;
  if (!kernels.count(name)) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(kernels[name].get());
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  if (index != 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = static_cast<size_t>(reinterpret_cast<Kernel*>(kernel)->param_bytes);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel, CUdevice) {
  const auto& self = *reinterpret_cast<Kernel*>(kernel);
  *value = which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES       ? self.static_shared
           : which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? self.max_threads
                                                              : 48 * 1024 - self.static_shared;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice) {
  FAKE_CALL(cuKernelSetAttribute);
  auto& self = *reinterpret_cast<Kernel*>(kernel);
  self.attributes[which] = value;
  fake::log("{\"call\":\"attribute\",\"entry\":" + fake::quote(self.name) +
            ",\"which\":" + std::to_string(which) + ",\"value\":" + std::to_string(value) + "}");
  return CUDA_SUCCESS;
}
}
