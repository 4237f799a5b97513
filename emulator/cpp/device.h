// Devices, contexts and queued operations. An operation runs only when the host waits for it, or for one that depends on it.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "block.h"
#include "memory.h"

namespace emulator {

typedef int Code;
enum : Code {
    SUCCESS = 0,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
};

struct Stream;
struct Context;

// An operation of a stream. If `after` is given, it waits until that stream has run `position` operations.
struct Operation {
    std::string what;
    std::function<void()> run;
    std::shared_ptr<Stream> after;
    unsigned long long position = 0;
    // The bytes of host memory that the operation holds.
    size_t held = 0;
};

struct Stream {
    Context* context;
    unsigned number;
    // True if the stream is ordered with the null stream.
    bool blocking;
    std::deque<Operation> queue;
    unsigned long long issued = 0, done = 0;
    size_t held = 0;
    // True while a host thread runs the stream's first operation.
    bool busy = false;
};

struct Event {
    unsigned number;
    bool timed;
    // True if a thread that waits for it sleeps.
    bool blocking;
    std::shared_ptr<Stream> stream;
    unsigned long long position = 0;
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct Device;

// A memory pool: memory that it takes from the device, and keeps for later allocations.
struct Pool {
    Device* device;
    // The bytes in use, the bytes taken from the device, and the bytes that stay when the host waits.
    unsigned long long used = 0, reserved = 0, threshold = 0;
    bool destroyed = false;

    void shrink(unsigned long long keep) {
        if (reserved > keep) reserved = used > keep ? used : keep;
    }
};

struct Allocation {
    unsigned number;
    Context* context;
    size_t bytes;
    std::unique_ptr<Mapping> mapping;
    // The pool of the memory; null for memory without a pool.
    Pool* pool;
    // `freeing` is true once the free is in a stream, `freed` once the free has run.
    bool freeing = false, freed = false;
};

// Pinned host memory. Copies read and write it when they run.
struct Pinned {
    size_t bytes;
    // The mapping; null for memory that the application registered.
    std::unique_ptr<Mapping> mapping;
    bool freed = false;
};

struct Context {
    Device* device;
    Code error = SUCCESS;
    std::shared_ptr<Stream> null_stream;
    // The streams of the context. A destroyed stream stays until its work is done.
    std::set<std::shared_ptr<Stream>> streams;
};

struct Device {
    int ordinal;
    // The bytes of the device's memory, and the bytes in use that belong to no pool.
    unsigned long long memory = 2ull << 30, plain = 0;
    // The pools. The first is the default pool.
    std::deque<Pool> pools;
    Context* primary = nullptr;
    unsigned retained = 0;
    unsigned streams = 0, events = 0, allocations = 0;

    // Injected faults: the number of allocations until one fails, and the number of launches until the device is lost with the error
    // `loss`. 0 injects none.
    unsigned long long failing = 0, launches_left = 0;
    Code loss = SUCCESS;
    bool lost = false;
    Order order = ALTERNATING;

    bool logging = false;
    std::string log, log_taken, fault, fault_taken;

    Pool& default_pool() {
        if (pools.empty()) pools.push_back({this});
        return pools.front();
    }
    unsigned long long used() const {
        auto add = [](unsigned long long sum, const Pool& pool) { return sum + pool.used; };
        return std::accumulate(pools.begin(), pools.end(), plain, add);
    }
    unsigned long long taken() const {
        auto add = [](unsigned long long sum, const Pool& pool) { return sum + pool.reserved; };
        return std::accumulate(pools.begin(), pools.end(), plain, add);
    }
    // Returns memory beyond each pool's threshold to the device.
    void shrink_pools() {
        for (Pool& pool : pools) pool.shrink(pool.threshold);
    }
};

constexpr int DEVICES = 64;
// If a stream has more operations, or holds more bytes, than these limits, it runs its oldest operation.
constexpr size_t MOST_QUEUED = 1024, MOST_HELD = 64 << 20;
// The number of freed allocations whose addresses are not reused yet.
constexpr size_t MOST_RETIRED = 2048;

// The state of the emulator. `lock` protects it, and is released while an operation runs.
struct State {
    std::mutex lock;
    std::condition_variable moved;
    bool initialized = false;
    int count = 1, driver_version = 13000;
    // The seed of the order of blocks.
    unsigned long long seed = 0;
    // The name of all devices.
    std::string name;
    Device devices[DEVICES];
    std::map<uintptr_t, Allocation> allocations;
    std::map<uintptr_t, Pinned> pinned;
    // Freed memory, which stays inaccessible and named in reports for a while.
    std::deque<uintptr_t> retired, retired_pinned;
    std::map<Stream*, std::shared_ptr<Stream>> streams;
    std::set<Event*> events;
    std::set<Context*> contexts;

    State() {
        for (int i = 0; i < DEVICES; i++) devices[i].ordinal = i;
    }

    // The state is never destroyed, since other threads may still run at exit.
    static State& get() {
        static State& state = *new State;
        return state;
    }
};

typedef std::unique_lock<std::mutex> Guard;

inline void note(Device& device, const std::string& line) {
    if (device.logging) device.log += line + "\n";
}

// Returns a text such as "m3+256" for an address in an allocation.
inline std::string named(uintptr_t address) {
    State& state = State::get();
    auto next = state.allocations.upper_bound(address);
    if (next != state.allocations.begin()) {
        auto& [start, allocation] = *std::prev(next);
        if (address < start + allocation.bytes + (allocation.bytes == 0)) {
            return Runner::format("m%u+%llu", allocation.number, (unsigned long long)(address - start));
        }
    }
    return Runner::format("%#llx", (unsigned long long)address);
}

// Describes a bad address by the nearest allocation.
inline std::string nearest(uintptr_t address) {
    State& state = State::get();
    for (auto& [start, pinned] : state.pinned) {
        if (pinned.freed && address >= start && address < start + pinned.bytes) return "in pinned memory that was freed";
    }
    auto next = state.allocations.upper_bound(address);
    unsigned long long past = ~0ull;
    if (next != state.allocations.begin()) {
        auto& [start, m] = *std::prev(next);
        if (address < start + m.bytes) {
            const char* why = m.freed ? "is freed" : "is not allocated yet where this runs";
            return Runner::format("in m%u of %zu bytes, which %s", m.number, m.bytes, why);
        }
        past = address - start - m.bytes;
    }
    if (next != state.allocations.end() && next->first - address < past) {
        return Runner::format("%llu bytes before m%u of %zu bytes", (unsigned long long)(next->first - address),
                              next->second.number, next->second.bytes);
    }
    if (past == ~0ull) return "nothing is allocated";
    auto& m = std::prev(next)->second;
    return Runner::format("%llu bytes past the end of m%u of %zu bytes", past, m.number, m.bytes);
}

void install_handlers();
void ready_thread();

// Runs one operation, while the lock is released.
inline Code execute(const Operation& operation, std::string& report) {
    ready_thread();
    Runner& runner = Runner::current();
    runner.fault = NO_FAULT;
    runner.address = runner.tried = 0;
    runner.report.clear();
    // `runner` outlives the jump.
    if (sigsetjmp(runner.escape, 1) == 0) {
        runner.armed = true;
        operation.run();
        runner.armed = false;
        return SUCCESS;
    }
    runner.armed = false;
    std::string at = runner.where();
    report = (at.empty() ? operation.what : at) + ": " + runner.report;
    if (runner.address) {
        std::string place = runner.shared_place(runner.address);
        Guard guard(State::get().lock);
        report += Runner::format(" %p: ", (void*)runner.address) + (place.empty() ? nearest(runner.address) : place);
    }
    report += Runner::format(" (CUDA_EMULATOR_SEED=%llu)", State::get().seed);
    runner.reset();
    return runner.fault;
}

// Makes every later call of the context return the error `code`.
inline void poison_context(Context& context, Code code, const std::string& report) {
    if (context.error) return;
    context.error = code;
    context.device->fault = report;
    fprintf(stderr, "CUDA emulator: %s\n", report.c_str());
}

// Runs a stream's operations up to `position`, after the operations of other streams that they wait for.
inline void run_until(Guard& guard, std::shared_ptr<Stream> stream, unsigned long long position) {
    State& state = State::get();
    while (stream->done < position) {
        if (stream->busy) {
            state.moved.wait(guard);
            continue;
        }
        Operation& front = stream->queue.front();
        if (front.after && front.after->done < front.position) {
            run_until(guard, front.after, front.position);
            continue;
        }
        Operation operation = std::move(front);
        stream->queue.pop_front();
        Context& context = *stream->context;
        if (operation.run && context.error == SUCCESS) {
            stream->busy = true;
            note(*context.device, Runner::format("  run s%u ", stream->number) + operation.what);
            std::string report;
            guard.unlock();
            Code code = execute(operation, report);
            guard.lock();
            if (code) poison_context(context, code, report);
            stream->busy = false;
        }
        stream->held -= operation.held;
        stream->done++;
        state.moved.notify_all();
    }
}

inline void run_all(Guard& guard, Context& context) {
    std::vector<std::shared_ptr<Stream>> streams(context.streams.begin(), context.streams.end());
    streams.push_back(context.null_stream);
    for (auto& stream : streams) run_until(guard, stream, stream->issued);
}

inline void append(Guard& guard, const std::shared_ptr<Stream>& stream, Operation operation) {
    stream->held += operation.held;
    stream->queue.push_back(std::move(operation));
    stream->issued++;
    if (stream->queue.size() > MOST_QUEUED || stream->held > MOST_HELD) run_until(guard, stream, stream->done + 1);
}

// Appends an operation, after the waits that its order with the null stream takes.
inline void enqueue(Guard& guard, const std::shared_ptr<Stream>& stream, Operation operation) {
    Context& context = *stream->context;
    auto follow = [&](const std::shared_ptr<Stream>& other) {
        if (other->done < other->issued) append(guard, stream, {"wait", nullptr, other, other->issued});
    };
    if (stream == context.null_stream) {
        std::vector<std::shared_ptr<Stream>> streams(context.streams.begin(), context.streams.end());
        for (auto& other : streams) {
            if (other->blocking) follow(other);
        }
    } else if (stream->blocking) {
        follow(context.null_stream);
    }
    append(guard, stream, std::move(operation));
}

}  // namespace emulator
