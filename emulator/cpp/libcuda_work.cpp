// The streams, events, modules and launches of the driver API, and the functions that running kernels call.

#include <algorithm>
#include <dlfcn.h>

#include "api.h"
#include "image.h"

using namespace emulator;

namespace {

// A loaded shared object. Pending launches keep it loaded.
struct Module {
    void* library;

    explicit Module(void* of) : library(of) {}
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;
    ~Module() { dlclose(library); }
};

struct Function {
    std::shared_ptr<Module> module;
    const EmulatorKernel* kernel;
};

struct ModuleHandle {
    std::shared_ptr<Module> module;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

Code create_stream(Stream** handle, bool blocking) {
    return in_context([&](Guard&, State& state, Context& context) {
        auto stream = std::make_shared<Stream>();
        stream->context = &context;
        stream->number = ++context.device->streams;
        stream->blocking = blocking;
        context.streams.insert(stream);
        state.streams[stream.get()] = stream;
        *handle = stream.get();
        note(*context.device, Runner::format("cuStreamCreate s%u", stream->number));
        return SUCCESS;
    });
}

template <class F> Code with_event(Event* event, F body) {
    return in_context([&](Guard& guard, State& state, Context& context) -> Code {
        return state.events.count(event) ? body(guard, state, context) : INVALID_HANDLE;
    });
}

bool is_past(const Event& event) { return !event.stream || event.stream->done >= event.position; }

// Loads a shared object from a temporary file, which is deleted at once. On failure, `why` has the reason. memfd is of no use: the loader
// takes two objects of one path for the same object, even after the first is closed.
void* load(const std::string& object, std::string& why) {
    const char* folder = getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/tmp") + "/cuda-emulator-kernel-XXXXXX";
    int file = mkstemp(&path[0]);
    if (file < 0) {
        why = "cannot make " + path;
        return nullptr;
    }
    size_t written = 0;
    while (written < object.size()) {
        ssize_t more = write(file, object.data() + written, object.size() - written);
        if (more <= 0) break;
        written += (size_t)more;
    }
    close(file);
    void* library = written == object.size() ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) why = written == object.size() ? dlerror() : "cannot write " + path;
    unlink(path.c_str());
    return library;
}

// The arguments of a launch, copied so that the caller may change its own.
struct Launch {
    Function function;
    EmulatorDim grid, block;
    Order order;
    // The seed of the order of blocks, made from the process's seed, the kernel and the grid.
    unsigned long long seed;
    std::vector<std::unique_ptr<char[]>> values;
    std::vector<void*> arguments;
};

std::string describe(const Launch& launch, unsigned stream) {
    const EmulatorKernel& kernel = *launch.function.kernel;
    std::string text = Runner::format("cuLaunchKernel s%u %s (%u, %u, %u) x %u", stream, kernel.name, launch.grid.x,
                                      launch.grid.y, launch.grid.z, launch.block.x * launch.block.y * launch.block.z);
    for (unsigned i = 0; i < kernel.arguments; i++) {
        if (kernel.pointers[i]) text += " " + named(*(uintptr_t*)launch.arguments[i]);
    }
    return text;
}

// Returns the accessible memory that a launch may write to.
std::vector<const Mapping*> written(const Launch& launch) {
    const EmulatorKernel& kernel = *launch.function.kernel;
    State& state = State::get();
    Guard guard(state.lock);
    std::vector<const Mapping*> mappings;
    for (unsigned i = 0; i < kernel.arguments; i++) {
        if (!kernel.written[i]) continue;
        auto next = state.allocations.upper_bound(*(uintptr_t*)launch.arguments[i]);
        if (next == state.allocations.begin()) continue;
        const Mapping* mapping = std::prev(next)->second.mapping.get();
        bool twice = std::find(mappings.begin(), mappings.end(), mapping) != mappings.end();
        if (mapping->is_open() && !twice) mappings.push_back(mapping);
    }
    return mappings;
}

void run(const Launch& launch) {
    Runner& runner = Runner::current();
    // `mappings` is static, since a fault jumps out of this function without destructors.
    static thread_local std::vector<const Mapping*> mappings;
    mappings = written(launch);
    runner.run(*launch.function.kernel, const_cast<void**>(launch.arguments.data()), launch.grid, launch.block, launch.order,
               launch.seed, mappings);
    Writes::Conflict conflict;
    if (!runner.conflict(conflict)) return;
    std::string place;
    {
        Guard guard(State::get().lock);
        place = named(conflict.at);
    }
    runner.fail(LAUNCH_FAILED, Runner::format("blocks %u and %u both change %s%s", conflict.first, conflict.second,
                                              place.c_str(), conflict.atomic ? ", the second by an atomic operation" : ""));
}

// Counts a launch. Loses the device if that is due.
Code survive(State& state, Device& device) {
    if (!device.loss || device.lost) return SUCCESS;
    if (device.launches_left > 0) return device.launches_left--, SUCCESS;
    device.lost = true;
    for (Context* context : state.contexts) {
        if (context->device == &device) poison_context(*context, device.loss, "the device is lost");
    }
    return device.loss;
}

}  // namespace

API cuStreamCreate(Stream** stream, unsigned flags) { return create_stream(stream, !(flags & 1)); }

API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return create_stream(stream, !(flags & 1)); }

// The pending work of the stream still runs when something waits for it.
API cuStreamDestroy_v2(Stream* handle) {
    return in_context([&](Guard&, State& state, Context& context) -> Code {
        if (!state.streams.erase(handle)) return INVALID_HANDLE;
        note(*context.device, Runner::format("cuStreamDestroy s%u", handle->number));
        // Destroyed streams without pending work are removed.
        for (auto stream = context.streams.begin(); stream != context.streams.end();) {
            bool idle = (*stream)->done == (*stream)->issued && !state.streams.count(stream->get());
            stream = idle ? context.streams.erase(stream) : std::next(stream);
        }
        return SUCCESS;
    });
}

API cuStreamSynchronize(void* handle) {
    return in_stream(handle, [&](Guard& guard, State&, std::shared_ptr<Stream> stream) {
        Device& device = *stream->context->device;
        note(device, Runner::format("cuStreamSynchronize s%u", stream->number));
        run_until(guard, stream, stream->issued);
        device.shrink_pools();
        return SUCCESS;
    });
}

// Runs one operation, so that a caller that polls makes progress.
API cuStreamQuery(void* handle) {
    return in_stream(handle, [&](Guard& guard, State&, std::shared_ptr<Stream> stream) -> Code {
        if (stream->done < stream->issued) run_until(guard, stream, stream->done + 1);
        return stream->done < stream->issued ? NOT_READY : SUCCESS;
    });
}

API cuStreamWaitEvent(void* handle, Event* event, unsigned) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!state.events.count(event)) return INVALID_HANDLE;
        std::string what = Runner::format("cuStreamWaitEvent s%u e%u", stream->number, event->number);
        note(*stream->context->device, what);
        if (!is_past(*event)) enqueue(guard, stream, {what, nullptr, event->stream, event->position});
        return SUCCESS;
    });
}

API cuStreamGetCtx(void* handle, Context** context) {
    return in_stream(handle, [&](Guard&, State&, std::shared_ptr<Stream> stream) {
        return *context = stream->context, SUCCESS;
    });
}

API cuStreamGetFlags(void* handle, unsigned* flags) {
    return in_stream(handle, [&](Guard&, State&, std::shared_ptr<Stream> stream) {
        return *flags = stream == stream->context->null_stream || stream->blocking ? 0 : 1, SUCCESS;
    });
}

API cuStreamIsCapturing(void* handle, int* status) {
    return in_stream(handle, [&](Guard&, State&, std::shared_ptr<Stream>) { return *status = 0, SUCCESS; });
}

API cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    return in_stream(handle, [&](Guard& guard, State&, std::shared_ptr<Stream> stream) {
        std::string what = Runner::format("cuLaunchHostFunc s%u", stream->number);
        note(*stream->context->device, what);
        enqueue(guard, stream, {what, [=] { function(data); }, nullptr});
        return SUCCESS;
    });
}

// Enqueues `run(data)` in a stream, for libcublas. `drop(data)` follows, even if `run` was skipped.
API emulator_enqueue(void* handle, const char* name, const char* operands, void (*run)(void*), void* data,
                     void (*drop)(void*)) {
    std::shared_ptr<void> owned(data, drop);
    return in_stream(handle, [&](Guard& guard, State&, std::shared_ptr<Stream> stream) {
        std::string what = Runner::format("%s s%u %s", name, stream->number, operands);
        note(*stream->context->device, what);
        enqueue(guard, stream, {what, [=] { run(owned.get()); }, nullptr});
        return SUCCESS;
    });
}

// Returns a text such as "m3+256" for the logs of libcublas. It is valid until this thread's next call.
extern "C" __attribute__((visibility("default"))) const char* emulator_named(const void* address) {
    static thread_local std::string text;
    Guard guard(State::get().lock);
    text = named((uintptr_t)address);
    return text.c_str();
}

API cuEventCreate(Event** handle, unsigned flags) {
    return in_context([&](Guard&, State& state, Context& context) {
        *handle = new Event{++context.device->events, !(flags & 2), (flags & 1) != 0, nullptr, 0, nullptr};
        state.events.insert(*handle);
        return SUCCESS;
    });
}

API cuEventDestroy_v2(Event* event) {
    return initialized([&](Guard&, State& state) -> Code {
        if (!state.events.erase(event)) return INVALID_HANDLE;
        delete event;
        return SUCCESS;
    });
}

API cuEventRecord(Event* event, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!state.events.count(event)) return INVALID_HANDLE;
        std::string what = Runner::format("cuEventRecord s%u e%u", stream->number, event->number);
        note(*stream->context->device, what);
        auto time = std::make_shared<std::chrono::steady_clock::time_point>();
        enqueue(guard, stream, {what, [=] { *time = std::chrono::steady_clock::now(); }, nullptr});
        event->stream = stream;
        event->position = stream->issued;
        event->time = time;
        return SUCCESS;
    });
}

API cuEventRecordWithFlags(Event* event, void* stream, unsigned) { return cuEventRecord(event, stream); }

API cuEventSynchronize(Event* event) {
    return with_event(event, [&](Guard& guard, State&, Context& context) {
        note(*context.device, Runner::format("cuEventSynchronize e%u%s", event->number, event->blocking ? " blocking" : ""));
        if (event->stream) run_until(guard, event->stream, event->position);
        return SUCCESS;
    });
}

// Runs one operation, as cuStreamQuery does.
API cuEventQuery(Event* event) {
    return with_event(event, [&](Guard& guard, State&, Context&) -> Code {
        if (!is_past(*event)) run_until(guard, event->stream, event->stream->done + 1);
        return is_past(*event) ? SUCCESS : NOT_READY;
    });
}

API cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
    return with_event(start, [&](Guard&, State& state, Context&) -> Code {
        if (!state.events.count(end) || !start->timed || !end->timed || !start->time || !end->time) return INVALID_HANDLE;
        if (!is_past(*start) || !is_past(*end)) return NOT_READY;
        *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
        return SUCCESS;
    });
}

API cuEventElapsedTime_v2(float* milliseconds, Event* start, Event* end) {
    return cuEventElapsedTime(milliseconds, start, end);
}

API cuModuleLoadData(ModuleHandle** handle, const void* image) {
    return in_context([&](Guard& guard, State&, Context&) -> Code {
        // Constructors of the kernel's object run without the lock, since they might call this library.
        guard.unlock();
        std::string object, why;
        void* library = nullptr;
        if (read_image(image, object, why)) library = load(object, why);
        guard.lock();
        if (!library) {
            fprintf(stderr, "CUDA emulator: cuModuleLoadData: %s\n", why.c_str());
            return INVALID_IMAGE;
        }
        *handle = new ModuleHandle{std::make_shared<Module>(library), {}};
        return SUCCESS;
    });
}

API cuModuleLoadDataEx(ModuleHandle** handle, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(handle, image);
}

API cuModuleUnload(ModuleHandle* handle) {
    return initialized([&](Guard&, State&) { return delete handle, SUCCESS; });
}

API cuModuleGetFunction(Function** function, ModuleHandle* handle, const char* name) {
    return in_context([&](Guard&, State&, Context&) -> Code {
        std::unique_ptr<Function>& place = handle->functions[name];
        if (!place) {
            std::string symbol = std::string(name) + "_emulator";
            auto* kernel = (const EmulatorKernel*)dlsym(handle->module->library, symbol.c_str());
            if (!kernel) return NOT_FOUND;
            place.reset(new Function{handle->module, kernel});
        }
        *function = place.get();
        return SUCCESS;
    });
}

API cuFuncGetAttribute(int* value, int attribute, Function* function) {
    return initialized([&](Guard&, State&) {
        switch (attribute) {
            case 0: *value = (int)function->kernel->threads; break;  // MAX_THREADS_PER_BLOCK
            case 4: *value = 32; break;                              // NUM_REGS
            case 5: case 6: *value = 80; break;                      // PTX_VERSION, BINARY_VERSION
            default: *value = 0;
        }
        return SUCCESS;
    });
}

API cuFuncSetAttribute(Function*, int, int) {
    return initialized([&](Guard&, State&) { return SUCCESS; });
}

API cuFuncSetCacheConfig(Function*, int) {
    return initialized([&](Guard&, State&) { return SUCCESS; });
}

API cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned, void* handle, void** arguments, void**) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        unsigned long long threads = (unsigned long long)block_x * block_y * block_z;
        if (threads == 0 || threads > 1024 || block_z > 64 || grid_x == 0 || grid_x > 2147483647 || grid_y == 0 ||
            grid_y > 65535 || grid_z == 0 || grid_z > 65535) {
            return INVALID_VALUE;
        }
        const EmulatorKernel& kernel = *function->kernel;
        // A launch with more threads than __launch_bounds__ fails.
        if (threads > kernel.threads) return INVALID_VALUE;
        auto launch = std::make_shared<Launch>();
        launch->function = *function;
        launch->grid = {grid_x, grid_y, grid_z};
        launch->block = {block_x, block_y, block_z};
        launch->order = stream->context->device->order;
        launch->seed = state.seed ^ std::hash<std::string>()(kernel.name) ^ ((unsigned long long)grid_y << 32 | grid_x);
        for (unsigned i = 0; i < kernel.arguments; i++) {
            launch->values.emplace_back(new char[kernel.sizes[i]]);
            memcpy(launch->values.back().get(), arguments[i], kernel.sizes[i]);
            launch->arguments.push_back(launch->values.back().get());
        }
        std::string what = describe(*launch, stream->number);
        note(*stream->context->device, what);
        Code lost = survive(state, *stream->context->device);
        if (lost) return lost;
        enqueue(guard, stream, {what, [=] { run(*launch); }, nullptr});
        return SUCCESS;
    });
}

// The functions that abi.h declares.

#define FOR_KERNELS(type) extern "C" __attribute__((visibility("default"))) type

FOR_KERNELS(void) emulator_barrier(unsigned line) { Runner::of_thread().barrier(line); }

FOR_KERNELS(const unsigned char*) emulator_exchange(const void* bytes, unsigned size, unsigned line,
                                                          void (*together)(unsigned char*)) {
    return Runner::of_thread().exchange(bytes, size, line, together);
}

FOR_KERNELS(void*) emulator_shared(const void* tag, const char* name, unsigned long size) {
    return Runner::of_thread().shared(tag, name, size);
}

FOR_KERNELS(void) emulator_copy_async(void* shared, const void* global, unsigned size, unsigned bytes) {
    Runner::of_thread().copy_async(shared, global, size, bytes);
}

FOR_KERNELS(void) emulator_copy_commit() { Runner::of_thread().copy_commit(); }

FOR_KERNELS(void) emulator_atomic(EmulatorAtomic operation, void* place, unsigned long long value) {
    Runner::of_thread().atomic(operation, place, value);
}

FOR_KERNELS(void) emulator_check_row(const void* row) { Runner::of_thread().check_row(row); }

// The compiler's check for alignment: kernels call this function if memory is not aligned to its type. The compiler defines the struct.

struct AlignmentCheck {
    const char* file;
    unsigned line, column;
    const struct { unsigned short kind, info; char name[1]; } * type;
    unsigned char log_alignment, use;
};

FOR_KERNELS(void) __ubsan_handle_type_mismatch_v1_abort(const AlignmentCheck* check, uintptr_t at) {
    const char* use = check->use == 0 ? "load of" : check->use == 1 ? "store to" : "use of";
    Runner& runner = Runner::of_thread();
    runner.fail(MISALIGNED_ADDRESS, Runner::format("misaligned %s %s at %p, line %u", use, check->type->name, (void*)at, check->line));
}

FOR_KERNELS(void) emulator_copy_wait(unsigned groups) { Runner::of_thread().copy_wait(groups); }
