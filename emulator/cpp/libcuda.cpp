// A libcuda for machines without a GPU: devices, contexts and errors. libcuda_memory.cpp has memory, libcuda_work.cpp has streams,
// modules and launches, and libcuda_control.cpp has the functions for tests.
//
// It does what the driver API promises, and nothing that real drivers do beyond that.

#include <csignal>
#include <ctime>
#include <sched.h>

#include "api.h"

using namespace emulator;

namespace {

struct sigaction previous[NSIG];

void on_signal(int signal, siginfo_t* info, void* machine) {
    Runner& runner = Runner::current();
    if (runner.armed) {
        bool memory = signal == SIGSEGV || signal == SIGBUS;
        uintptr_t address = memory ? (uintptr_t)info->si_addr : 0;
        if (memory && runner.first_write(address)) return;
        // A copy may meet pages that a launch on another thread has made read-only. It is tried until that launch ends, and once more.
        if (memory && (Writes::watched(address) || runner.tried != address)) {
            runner.tried = address;
            return (void)sched_yield();
        }
        runner.address = address;
        if (memory) runner.fail(ILLEGAL_ADDRESS, info->si_addr ? "illegal address" : "illegal or misaligned address");
        runner.fail(LAUNCH_FAILED, signal == SIGFPE ? "division by zero" : "trap");
    }
    struct sigaction& before = previous[signal];
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, machine);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else {
        // The signal is raised again, and ends the process as it would without the emulator.
        sigaction(signal, &before, nullptr);
    }
}

// The stack for the signal handler of a thread that has none. The handler needs a stack of its own, since a full stack may be the fault.
struct SignalStack {
    std::unique_ptr<char[]> bytes;

    SignalStack() {
        stack_t old = {};
        if (sigaltstack(nullptr, &old) != 0 || !(old.ss_flags & SS_DISABLE)) return;
        constexpr size_t SIZE = 64 << 10;
        bytes.reset(new char[SIZE]);
        stack_t own = {};
        own.ss_sp = bytes.get();
        own.ss_size = SIZE;
        sigaltstack(&own, nullptr);
    }
    ~SignalStack() {
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        if (bytes) sigaltstack(&none, nullptr);
    }
};

unsigned long long variable(const char* name, unsigned long long otherwise) {
    const char* text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

void read_environment(State& state) {
    state.count = (int)variable("CUDA_EMULATOR_DEVICES", (unsigned long long)state.count);
    if (state.count > DEVICES) state.count = DEVICES;
    state.seed = variable("CUDA_EMULATOR_SEED", ((unsigned long long)time(nullptr) * 1000003 ^ (unsigned long long)getpid()) % 1000000);
    // The default name has the seed, so that the report of a failed test tells the order of blocks.
    const char* name = getenv("CUDA_EMULATOR_NAME");
    state.name = name ? name : "CUDA emulator, seed " + std::to_string(state.seed);
    const char* memory = getenv("CUDA_EMULATOR_MEMORY");
    for (Device& device : state.devices) {
        // The last size holds for all remaining devices.
        if (memory) device.memory = strtoull(memory, nullptr, 10);
        if (const char* comma = memory ? strchr(memory, ',') : nullptr) memory = comma + 1;
        device.failing = variable("CUDA_EMULATOR_FAIL_ALLOCATION", device.failing);
        if (getenv("CUDA_EMULATOR_LOSE_AFTER")) {
            device.loss = 46;
            device.launches_left = variable("CUDA_EMULATOR_LOSE_AFTER", 0);
        }
    }
}

Context* create_context(State& state, Device& device) {
    auto* context = new Context;
    context->device = &device;
    if (device.lost) context->error = device.loss;
    context->null_stream = std::make_shared<Stream>();
    context->null_stream->context = context;
    context->null_stream->number = 0;
    state.contexts.insert(context);
    return context;
}

// Finishes the work of a context, unless it has an error, and frees all that it holds.
void destroy_context(Guard& guard, State& state, Context* context) {
    run_all(guard, *context);
    for (auto m = state.allocations.begin(); m != state.allocations.end();) {
        Allocation& allocation = m->second;
        if (allocation.context != context || allocation.freed) {
            ++m;
            continue;
        }
        (allocation.pool ? allocation.pool->used : context->device->plain) -= allocation.bytes;
        m = state.allocations.erase(m);
    }
    for (auto& stream : context->streams) state.streams.erase(stream.get());
    state.contexts.erase(context);
    delete context;
}

template <class F> Code of_device(int ordinal, F body) {
    return initialized([&](Guard& guard, State& state) -> Code {
        // Devices beyond the count exist too, so that each test of faults can use its own device.
        if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
        return body(guard, state, state.devices[ordinal]);
    });
}

struct Named {
    Code code;
    const char *name, *text;
};
const Named ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {226, "CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

// Returns an attribute of an Ampere card, for which kernels are compiled by default.
int attribute(int which, int ordinal) {
    switch (which) {
        case 1: return 1024;        // MAX_THREADS_PER_BLOCK
        case 2: case 3: return 1024;  // MAX_BLOCK_DIM_X, Y
        case 4: return 64;          // MAX_BLOCK_DIM_Z
        case 5: return 2147483647;  // MAX_GRID_DIM_X
        case 6: case 7: return 65535;  // MAX_GRID_DIM_Y, Z
        case 8: return 48 << 10;    // MAX_SHARED_MEMORY_PER_BLOCK
        case 10: return 32;         // WARP_SIZE
        case 12: return 65536;      // MAX_REGISTERS_PER_BLOCK
        case 13: return 1000000;    // CLOCK_RATE
        case 14: return 512;        // TEXTURE_ALIGNMENT
        case 15: case 31: return 1;  // GPU_OVERLAP, CONCURRENT_KERNELS
        case 16: return ordinal == 1 ? 132 : 2;  // MULTIPROCESSOR_COUNT: one device is as large as an H200
        case 19: return 1;          // CAN_MAP_HOST_MEMORY
        case 33: return 0x7e;       // PCI_BUS_ID
        case 34: return ordinal;    // PCI_DEVICE_ID
        case 36: return 1000000;    // MEMORY_CLOCK_RATE
        case 37: return 64;         // GLOBAL_MEMORY_BUS_WIDTH
        case 38: return 1 << 20;    // L2_CACHE_SIZE
        case 39: return 2048;       // MAX_THREADS_PER_MULTIPROCESSOR
        case 40: return 2;          // ASYNC_ENGINE_COUNT
        case 41: return 1;          // UNIFIED_ADDRESSING
        case 75: return 8;          // COMPUTE_CAPABILITY_MAJOR
        case 76: return 0;          // COMPUTE_CAPABILITY_MINOR
        case 78: return 1;          // STREAM_PRIORITIES_SUPPORTED
        case 81: return 164 << 10;  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        case 97: return 48 << 10;   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        case 115: return 1;         // MEMORY_POOLS_SUPPORTED
        default: return 0;
    }
}

}  // namespace

namespace emulator {

void ready_thread() { static thread_local SignalStack stack; }

void install_handlers() {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, &previous[signal]);
}

}  // namespace emulator

API cuInit(unsigned) {
    State& state = State::get();
    Guard guard(state.lock);
    static bool first = true;
    if (first) {
        first = false;
        read_environment(state);
        install_handlers();
    }
    if (state.count == 0) return NO_DEVICE;
    state.initialized = true;
    return SUCCESS;
}

API cuDriverGetVersion(int* version) {
    State& state = State::get();
    Guard guard(state.lock);
    // This call is valid before cuInit.
    *version = (int)variable("CUDA_EMULATOR_DRIVER", (unsigned long long)state.driver_version);
    return SUCCESS;
}

API cuDeviceGetCount(int* count) {
    return initialized([&](Guard&, State& state) { return *count = state.count, SUCCESS; });
}

API cuDeviceGet(int* device, int ordinal) {
    return of_device(ordinal, [&](Guard&, State&, Device&) { return *device = ordinal, SUCCESS; });
}

API cuDeviceGetName(char* name, int bytes, int device) {
    return of_device(device, [&](Guard&, State&, Device&) {
        return snprintf(name, (size_t)bytes, "%s", State::get().name.c_str()), SUCCESS;
    });
}

API cuDeviceGetAttribute(int* value, int which, int device) {
    return of_device(device, [&](Guard&, State&, Device&) { return *value = attribute(which, device), SUCCESS; });
}

API cuDeviceTotalMem_v2(size_t* bytes, int device) {
    return of_device(device, [&](Guard&, State&, Device& of) { return *bytes = of.memory, SUCCESS; });
}

API cuDeviceGetUuid_v2(char* uuid, int device) {
    return of_device(device, [&](Guard&, State&, Device&) {
        memcpy(uuid, "cuda-emulator  ", 16);
        uuid[15] = (char)device;
        return SUCCESS;
    });
}

API cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API cuDeviceGetPCIBusId(char* id, int bytes, int device) {
    return of_device(device, [&](Guard&, State&, Device&) {
        return snprintf(id, (size_t)bytes, "0000:7E:%02X.0", device), SUCCESS;
    });
}

API cuDevicePrimaryCtxRetain(Context** context, int device) {
    return of_device(device, [&](Guard&, State& state, Device& of) -> Code {
        if (of.lost) return of.loss;
        if (of.retained++ == 0) of.primary = create_context(state, of);
        *context = of.primary;
        return SUCCESS;
    });
}

API cuDevicePrimaryCtxRelease_v2(int device) {
    return of_device(device, [&](Guard& guard, State& state, Device& of) -> Code {
        if (of.retained == 0) return INVALID_CONTEXT;
        if (--of.retained == 0) {
            destroy_context(guard, state, of.primary);
            of.primary = nullptr;
        }
        return SUCCESS;
    });
}

API cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
    return of_device(device, [&](Guard&, State&, Device& of) {
        *flags = 0;
        *active = of.retained > 0;
        return SUCCESS;
    });
}

API cuCtxCreate_v2(Context** context, unsigned, int device) {
    return of_device(device, [&](Guard&, State& state, Device& of) -> Code {
        if (of.lost) return of.loss;
        *context = create_context(state, of);
        current_contexts.push_back(*context);
        return SUCCESS;
    });
}

API cuCtxCreate_v3(Context** context, void*, int, unsigned flags, int device) {
    return cuCtxCreate_v2(context, flags, device);
}

API cuCtxCreate_v4(Context** context, void*, unsigned flags, int device) {
    return cuCtxCreate_v2(context, flags, device);
}

API cuCtxDestroy_v2(Context* context) {
    return initialized([&](Guard& guard, State& state) -> Code {
        if (!state.contexts.count(context) || context->device->primary == context) return INVALID_CONTEXT;
        if (current_context() == context) current_contexts.pop_back();
        destroy_context(guard, state, context);
        return SUCCESS;
    });
}

API cuCtxGetCurrent(Context** context) {
    return initialized([&](Guard&, State&) { return *context = current_context(), SUCCESS; });
}

API cuCtxSetCurrent(Context* context) {
    return initialized([&](Guard&, State& state) -> Code {
        if (context && !state.contexts.count(context)) return INVALID_CONTEXT;
        if (!current_contexts.empty()) current_contexts.pop_back();
        if (context) current_contexts.push_back(context);
        return SUCCESS;
    });
}

API cuCtxPushCurrent_v2(Context* context) {
    return initialized([&](Guard&, State& state) -> Code {
        if (!state.contexts.count(context)) return INVALID_CONTEXT;
        current_contexts.push_back(context);
        return SUCCESS;
    });
}

API cuCtxPopCurrent_v2(Context** context) {
    return initialized([&](Guard&, State&) -> Code {
        if (current_contexts.empty()) return INVALID_CONTEXT;
        if (context) *context = current_contexts.back();
        current_contexts.pop_back();
        return SUCCESS;
    });
}

API cuCtxGetDevice(int* device) {
    return in_context([&](Guard&, State&, Context& context) { return *device = context.device->ordinal, SUCCESS; });
}

API cuCtxGetApiVersion(Context*, unsigned* version) {
    return initialized([&](Guard&, State& state) { return *version = (unsigned)state.driver_version, SUCCESS; });
}

API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return in_context([&](Guard&, State&, Context&) {
        *least = 0;
        *greatest = -5;
        return SUCCESS;
    });
}

API cuCtxSynchronize() {
    return in_context([&](Guard& guard, State&, Context& context) {
        note(*context.device, "cuCtxSynchronize");
        run_all(guard, context);
        context.device->shrink_pools();
        return SUCCESS;
    });
}

API cuGetErrorName(Code code, const char** name) {
    for (const Named& error : ERRORS) {
        if (error.code == code) return *name = error.name, SUCCESS;
    }
    return INVALID_VALUE;
}

API cuGetErrorString(Code code, const char** text) {
    for (const Named& error : ERRORS) {
        if (error.code == code) return *text = error.text, SUCCESS;
    }
    return INVALID_VALUE;
}
