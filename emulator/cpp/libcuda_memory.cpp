// The memory functions of the driver API. Each allocation is a mapping, which is accessible from the time its allocation runs in its
// stream until its free runs. Copies read and write pinned memory when they run, and other host memory at once.

#include <algorithm>

#include "api.h"

using namespace emulator;

namespace {

typedef unsigned long long Pointer;

// Returns the live allocation that holds the whole range, or null.
Allocation* holding(State& state, uintptr_t address, size_t bytes) {
    auto next = state.allocations.upper_bound(address);
    if (next == state.allocations.begin()) return nullptr;
    auto& [start, allocation] = *std::prev(next);
    return !allocation.freed && address - start <= allocation.bytes && bytes <= allocation.bytes - (address - start)
               ? &allocation
               : nullptr;
}

bool is_pinned(State& state, const void* host, size_t bytes) {
    auto next = state.pinned.upper_bound((uintptr_t)host);
    if (next == state.pinned.begin()) return false;
    auto& [start, pinned] = *std::prev(next);
    return !pinned.freed && (uintptr_t)host + bytes <= start + pinned.bytes;
}

// Reserves memory. Mapping::open makes its bytes accessible.
Code allocate(Guard& guard, State& state, Context& context, size_t bytes, Pool* pool, Pointer* place) {
    Device& device = *context.device;
    if (bytes == 0) return INVALID_VALUE;
    if (device.failing > 0 && --device.failing == 0) return OUT_OF_MEMORY;
    auto fits = [&] { return bytes <= device.memory && device.used() <= device.memory - bytes; };
    if (!fits()) {
        // A real pool also waits for pending frees before it fails.
        run_all(guard, context);
        if (context.error) return context.error;
        if (!fits()) return OUT_OF_MEMORY;
    }
    auto mapping = std::make_unique<Mapping>(bytes);
    if (!mapping->valid()) return OUT_OF_MEMORY;
    *place = (Pointer)(uintptr_t)mapping->data(bytes);
    (pool ? pool->used : device.plain) += bytes;
    if (pool && pool->reserved < pool->used) pool->reserved = pool->used;
    for (Pool& other : device.pools) {
        unsigned long long taken = device.taken(), beyond = taken > device.memory ? taken - device.memory : 0;
        other.shrink(other.reserved > beyond ? other.reserved - beyond : 0);
    }
    state.allocations[(uintptr_t)*place] = {++device.allocations, &context, bytes, std::move(mapping), pool};
    return SUCCESS;
}

// Makes memory inaccessible and returns it to the system.
void release(State& state, uintptr_t address, Allocation& allocation) {
    (allocation.pool ? allocation.pool->used : allocation.context->device->plain) -= allocation.bytes;
    allocation.freed = true;
    allocation.mapping->close();
    state.retired.push_back(address);
    if (state.retired.size() > MOST_RETIRED) {
        state.allocations.erase(state.retired.front());
        state.retired.pop_front();
    }
}

void open(Allocation& allocation) {
    if (!allocation.mapping->open(allocation.bytes)) Runner::current().fail(LAUNCH_FAILED, "the machine is out of memory");
}

// Returns an operation that copies the bytes that are there when it runs.
Operation copy(std::string what, void* target, const void* source, size_t bytes) {
    return {std::move(what), [=] { memcpy(target, source, bytes); }, nullptr};
}

// Enqueues `operation`, and waits for it.
void now(Guard& guard, const std::shared_ptr<Stream>& stream, Operation operation) {
    enqueue(guard, stream, std::move(operation));
    run_until(guard, stream, stream->issued);
}

std::string upload_name(const char* call, const Stream& stream, Pointer target, const void* host, size_t bytes) {
    return Runner::format("%s s%u %s %zu bytes from ", call, stream.number, named(target).c_str(), bytes) +
           (is_pinned(State::get(), host, bytes) ? "pinned" : "pageable");
}

Code fill(void* handle, const char* call, Pointer target, size_t count, unsigned value, size_t width, bool wait) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (target % width || !holding(state, target, count * width)) return INVALID_VALUE;
        std::string what = Runner::format("%s s%u %s %zu bytes", call, stream->number, named(target).c_str(), count * width);
        note(*stream->context->device, what);
        Operation operation = {what, [=] {
            if (width == 1) memset((void*)(uintptr_t)target, (int)value, count);
            else std::fill_n((unsigned*)(uintptr_t)target, count, value);
        }, nullptr};
        if (wait) now(guard, stream, std::move(operation));
        else enqueue(guard, stream, std::move(operation));
        return SUCCESS;
    });
}

}  // namespace

API cuMemAlloc_v2(Pointer* place, size_t bytes) {
    return in_context([&](Guard& guard, State& state, Context& context) -> Code {
        Code code = allocate(guard, state, context, bytes, nullptr, place);
        if (code) return code;
        note(*context.device, Runner::format("cuMemAlloc %s %zu bytes", named(*place).c_str(), bytes));
        Allocation& allocation = state.allocations[(uintptr_t)*place];
        return allocation.mapping->open(bytes) ? SUCCESS : OUT_OF_MEMORY;
    });
}

API cuMemFree_v2(Pointer place) {
    return in_context([&](Guard& guard, State& state, Context& context) -> Code {
        auto found = state.allocations.find((uintptr_t)place);
        if (found == state.allocations.end() || found->second.freeing) return INVALID_VALUE;
        note(*context.device, "cuMemFree " + named(place));
        found->second.freeing = true;
        run_all(guard, context);
        release(state, found->first, found->second);
        return SUCCESS;
    });
}

API cuMemAllocFromPoolAsync(Pointer* place, size_t bytes, Pool* pool, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (pool->destroyed || pool->device != stream->context->device) return INVALID_VALUE;
        Code code = allocate(guard, state, *stream->context, bytes, pool, place);
        if (code) return code;
        std::string what = Runner::format("cuMemAllocAsync s%u %s %zu bytes", stream->number, named(*place).c_str(), bytes);
        note(*stream->context->device, what);
        Allocation* allocation = &state.allocations[(uintptr_t)*place];
        enqueue(guard, stream, {what, [=] { open(*allocation); }, nullptr});
        return SUCCESS;
    });
}

API cuMemAllocAsync(Pointer* place, size_t bytes, void* handle) {
    Pool* pool = nullptr;
    Code code = in_stream(handle, [&](Guard&, State&, std::shared_ptr<Stream> stream) -> Code {
        return pool = &stream->context->device->default_pool(), SUCCESS;
    });
    return code ? code : cuMemAllocFromPoolAsync(place, bytes, pool, handle);
}

API cuMemFreeAsync(Pointer place, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        auto found = state.allocations.find((uintptr_t)place);
        if (found == state.allocations.end() || found->second.freeing) return INVALID_VALUE;
        std::string what = Runner::format("cuMemFreeAsync s%u %s", stream->number, named(place).c_str());
        note(*stream->context->device, what);
        found->second.freeing = true;
        enqueue(guard, stream, {what, [=, &state] {
            Guard guard(state.lock);
            auto found = state.allocations.find((uintptr_t)place);
            if (found != state.allocations.end()) release(state, found->first, found->second);
        }, nullptr});
        return SUCCESS;
    });
}

API cuMemGetInfo_v2(size_t* free, size_t* total) {
    return in_context([&](Guard&, State&, Context& context) {
        Device& device = *context.device;
        *total = device.memory;
        *free = device.memory - device.taken();
        return SUCCESS;
    });
}

API cuMemGetAddressRange_v2(Pointer* base, size_t* bytes, Pointer address) {
    return in_context([&](Guard&, State& state, Context&) -> Code {
        if (!holding(state, (uintptr_t)address, 0)) return NOT_FOUND;
        auto& [start, allocation] = *std::prev(state.allocations.upper_bound((uintptr_t)address));
        if (base) *base = start;
        if (bytes) *bytes = allocation.bytes;
        return SUCCESS;
    });
}

API cuPointerGetAttribute(void* data, int attribute, Pointer address) {
    return in_context([&](Guard&, State& state, Context&) -> Code {
        Allocation* allocation = holding(state, (uintptr_t)address, 0);
        if (!allocation) return INVALID_VALUE;
        switch (attribute) {
            case 1: *(Context**)data = allocation->context; return SUCCESS;  // CONTEXT
            case 2: *(unsigned*)data = 2; return SUCCESS;                    // MEMORY_TYPE: device
            case 3: *(Pointer*)data = address; return SUCCESS;               // DEVICE_POINTER
            case 8: *(unsigned*)data = 0; return SUCCESS;                    // IS_MANAGED
            case 9: *(int*)data = allocation->context->device->ordinal; return SUCCESS;  // DEVICE_ORDINAL
            default: return NOT_SUPPORTED;
        }
    });
}

API cuDeviceGetDefaultMemPool(Pool** pool, int device) {
    return initialized([&](Guard&, State& state) -> Code {
        if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
        *pool = &state.devices[device].default_pool();
        return SUCCESS;
    });
}

API cuDeviceGetMemPool(Pool** pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }

// `properties` starts with the type of memory, the type of handles, and the type and number of the location.
API cuMemPoolCreate(Pool** pool, const int* properties) {
    return initialized([&](Guard&, State& state) -> Code {
        const int PINNED = 1, ON_DEVICE = 1;
        int device = properties[3];
        if (properties[0] != PINNED || properties[2] != ON_DEVICE) return INVALID_VALUE;
        if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
        state.devices[device].default_pool();
        state.devices[device].pools.push_back({&state.devices[device]});
        *pool = &state.devices[device].pools.back();
        return SUCCESS;
    });
}

// Memory that was allocated from the pool stays valid.
API cuMemPoolDestroy(Pool* pool) {
    return initialized([&](Guard&, State&) -> Code {
        if (pool->destroyed || pool == &pool->device->default_pool()) return INVALID_VALUE;
        pool->destroyed = true;
        pool->threshold = 0;
        pool->shrink(0);
        return SUCCESS;
    });
}

API cuMemPoolSetAttribute(Pool* pool, int attribute, unsigned long long* value) {
    return initialized([&](Guard&, State&) -> Code {
        if (attribute == 4) pool->threshold = *value;  // RELEASE_THRESHOLD
        return SUCCESS;
    });
}

API cuMemPoolGetAttribute(Pool* pool, int attribute, unsigned long long* value) {
    return initialized([&](Guard&, State&) -> Code {
        switch (attribute) {
            case 4: *value = pool->threshold; return SUCCESS;  // RELEASE_THRESHOLD
            case 5: *value = pool->reserved; return SUCCESS;   // RESERVED_MEM_CURRENT
            case 7: *value = pool->used; return SUCCESS;       // USED_MEM_CURRENT
            default: return NOT_SUPPORTED;
        }
    });
}

API cuMemPoolTrimTo(Pool* pool, size_t keep) {
    return initialized([&](Guard&, State&) { return pool->shrink(keep), SUCCESS; });
}

API cuMemHostAlloc(void** place, size_t bytes, unsigned) {
    return in_context([&](Guard&, State& state, Context& context) -> Code {
        auto mapping = std::make_unique<Mapping>(bytes);
        if (!mapping->valid() || !mapping->open(bytes)) return OUT_OF_MEMORY;
        *place = mapping->data(bytes);
        note(*context.device, Runner::format("cuMemHostAlloc %zu bytes", bytes));
        state.pinned[(uintptr_t)*place] = {bytes, std::move(mapping)};
        return SUCCESS;
    });
}

// Does not wait: copies that have not run yet will fault.
API cuMemFreeHost(void* place) {
    return in_context([&](Guard&, State& state, Context& context) -> Code {
        auto found = state.pinned.find((uintptr_t)place);
        if (found == state.pinned.end() || found->second.freed || !found->second.mapping) return INVALID_VALUE;
        note(*context.device, Runner::format("cuMemFreeHost %zu bytes", found->second.bytes));
        found->second.mapping->close();
        found->second.freed = true;
        state.retired_pinned.push_back(found->first);
        if (state.retired_pinned.size() > MOST_RETIRED) {
            state.pinned.erase(state.retired_pinned.front());
            state.retired_pinned.pop_front();
        }
        return SUCCESS;
    });
}

API cuMemHostRegister_v2(void* place, size_t bytes, unsigned) {
    return in_context([&](Guard&, State& state, Context&) -> Code {
        if (bytes == 0 || is_pinned(state, place, 1)) return INVALID_VALUE;
        state.pinned[(uintptr_t)place] = {bytes, nullptr};
        return SUCCESS;
    });
}

API cuMemHostUnregister(void* place) {
    return in_context([&](Guard&, State& state, Context&) -> Code {
        auto found = state.pinned.find((uintptr_t)place);
        if (found == state.pinned.end() || found->second.mapping) return INVALID_VALUE;
        state.pinned.erase(found);
        return SUCCESS;
    });
}

API cuMemcpyHtoDAsync_v2(Pointer target, const void* host, size_t bytes, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!holding(state, target, bytes)) return INVALID_VALUE;
        std::string what = upload_name("cuMemcpyHtoDAsync", *stream, target, host, bytes);
        note(*stream->context->device, what);
        if (is_pinned(state, host, bytes)) {
            enqueue(guard, stream, copy(what, (void*)(uintptr_t)target, host, bytes));
            return SUCCESS;
        }
        auto held = std::make_shared<std::vector<char>>((const char*)host, (const char*)host + bytes);
        Operation operation = {what, [=] { memcpy((void*)(uintptr_t)target, held->data(), bytes); }, nullptr};
        operation.held = bytes;
        enqueue(guard, stream, std::move(operation));
        return SUCCESS;
    });
}

API cuMemcpyHtoD_v2(Pointer target, const void* host, size_t bytes) {
    return in_stream(nullptr, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!holding(state, target, bytes)) return INVALID_VALUE;
        std::string what = upload_name("cuMemcpyHtoD", *stream, target, host, bytes);
        note(*stream->context->device, what);
        now(guard, stream, copy(what, (void*)(uintptr_t)target, host, bytes));
        return SUCCESS;
    });
}

API cuMemcpyDtoHAsync_v2(void* host, Pointer source, size_t bytes, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!holding(state, source, bytes)) return INVALID_VALUE;
        bool pinned = is_pinned(state, host, bytes);
        std::string what = Runner::format("cuMemcpyDtoHAsync s%u %s %zu bytes to %s", stream->number,
                                          named(source).c_str(), bytes, pinned ? "pinned" : "pageable");
        note(*stream->context->device, what);
        Operation operation = copy(what, host, (const void*)(uintptr_t)source, bytes);
        if (pinned) enqueue(guard, stream, std::move(operation));
        else now(guard, stream, std::move(operation));
        return SUCCESS;
    });
}

API cuMemcpyDtoH_v2(void* host, Pointer source, size_t bytes) {
    return in_stream(nullptr, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!holding(state, source, bytes)) return INVALID_VALUE;
        std::string what = Runner::format("cuMemcpyDtoH s0 %s %zu bytes", named(source).c_str(), bytes);
        note(*stream->context->device, what);
        now(guard, stream, copy(what, host, (const void*)(uintptr_t)source, bytes));
        return SUCCESS;
    });
}

API cuMemcpyDtoDAsync_v2(Pointer target, Pointer source, size_t bytes, void* handle) {
    return in_stream(handle, [&](Guard& guard, State& state, std::shared_ptr<Stream> stream) -> Code {
        if (!holding(state, target, bytes) || !holding(state, source, bytes)) return INVALID_VALUE;
        std::string what = Runner::format("cuMemcpyDtoDAsync s%u %s from %s %zu bytes", stream->number,
                                          named(target).c_str(), named(source).c_str(), bytes);
        note(*stream->context->device, what);
        enqueue(guard, stream, copy(what, (void*)(uintptr_t)target, (const void*)(uintptr_t)source, bytes));
        return SUCCESS;
    });
}

// The copy runs in the null stream, and the host does not wait.
API cuMemcpyDtoD_v2(Pointer target, Pointer source, size_t bytes) {
    return cuMemcpyDtoDAsync_v2(target, source, bytes, nullptr);
}

API cuMemsetD8Async(Pointer target, unsigned char value, size_t count, void* stream) {
    return fill(stream, "cuMemsetD8Async", target, count, value, 1, false);
}

API cuMemsetD8_v2(Pointer target, unsigned char value, size_t count) {
    return fill(nullptr, "cuMemsetD8", target, count, value, 1, true);
}

API cuMemsetD32Async(Pointer target, unsigned value, size_t count, void* stream) {
    return fill(stream, "cuMemsetD32Async", target, count, value, 4, false);
}

API cuMemsetD32_v2(Pointer target, unsigned value, size_t count) {
    return fill(nullptr, "cuMemsetD32", target, count, value, 4, true);
}
