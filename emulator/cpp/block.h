// Runs the blocks of a launch in a random order, with a fiber for each thread. Blocks do not see each other's writes: see writes.h.
//
// A warp runs until each of its threads waits. Then the next warp runs, so a kernel that forgets to wait for another warp mostly finds
// that warp's data missing. Shared memory is poisoned when a block starts. The target of a background copy is poisoned until the thread
// waits for the copy.

#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "abi.h"
#include "fiber.h"
#include "memory.h"
#include "writes.h"

namespace emulator {

// The driver API's error codes for faults of a kernel.
enum Fault : int { NO_FAULT = 0, INVALID_VALUE = 1, ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

// The order in which warps, and the threads of a warp, run between two barriers.
enum Order : int { ALTERNATING = 0, ASCENDING = 1, DESCENDING = 2 };

// Runs operations on one host thread. A fault jumps to `escape`.
class Runner : EmulatorBlock {
public:
    static Runner& current() {
        static thread_local Runner runner;
        return runner;
    }
    // Returns the runner of the running CUDA thread.
    static Runner& of_thread() { return *(Runner*)emulator_thread()->block; }

    sigjmp_buf escape;
    // True while a fault jumps to `escape`.
    bool armed = false;
    // The fault, and a report for the code at `escape`.
    Fault fault = NO_FAULT;
    std::string report;
    // The address of the last signal, and the last address whose access was tried again.
    uintptr_t address = 0, tried = 0;

    // Runs all blocks. `written` is the memory that the launch may write to. A fault jumps to `escape`.
    void run(const EmulatorKernel& of, void** with, EmulatorDim blocks, EmulatorDim block, Order in_order,
             unsigned long long seed, const std::vector<const Mapping*>& written) {
        kernel = &of;
        arguments = with;
        grid = blocks;
        threads = block;
        order = in_order;
        count = block.x * block.y * block.z;
        lanes.resize(count);
        warps.resize((count + 31) / 32);
        arrays.clear();
        shuffle(blocks.x * blocks.y * blocks.z, seed);
        if (numbers.size() > 1) writes.begin(written);
        for (size_t i = 0; i < numbers.size(); i++) {
            if (writes.watching() && i == numbers.size() / 2) writes.apply();
            number = numbers[i];
            index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
            run_block();
            if (writes.watching()) writes.end_block(number);
        }
        kernel = nullptr;
        if (!writes.watching()) return;
        // No page is read-only any more.
        writes.end();
        writes.apply();
    }

    // Returns true if two blocks of the last launch wrote the same byte, and describes where in `found`.
    bool conflict(Writes::Conflict& found) { return numbers.size() > 1 && writes.conflict(found); }

    // Returns true if a fault at this address was a block's first write to a page. The page is then writable, and the block goes on.
    bool first_write(uintptr_t at) { return writes.first_write(at); }

    // Drops all threads of a launch that ended with a fault.
    void reset() {
        kernel = nullptr;
        writes.end();
        free_fibers.clear();
        started = 0;
        for (Lane& lane : lanes) lane.copies.clear();
    }

    // Returns a text such as "kernel reduce, block (1, 0, 0), thread (3, 0, 0)", which is empty outside of kernels.
    std::string where() const {
        if (!kernel) return "";
        std::string block = format("kernel %s, block (%u, %u, %u)", kernel->name, index.x, index.y, index.z);
        // No single thread is at fault, but the block.
        if (running == count) return block;
        const EmulatorDim at = place(running);
        return block + format(", thread (%u, %u, %u)", at.x, at.y, at.z);
    }

    // Returns a text such as "12 bytes past the end of the shared array `tile` of 64", which is empty for an address elsewhere.
    std::string shared_place(uintptr_t at) const {
        for (const Array& array : arrays) {
            uintptr_t start = (uintptr_t)array.data;
            if (!array.mapping->spans(at)) continue;
            long long from = at < start ? (long long)(start - at) : (long long)(at - start - array.size);
            return format("%lld bytes %s the shared array `%s` of %zu", from, at < start ? "before" : "past the end of",
                          array.name, array.size);
        }
        return stacks.past_the_end(at) ? "the thread's stack is full" : "";
    }

    static std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2))) {
        char text[512];
        va_list values;
        va_start(values, pattern);
        vsnprintf(text, sizeof text, pattern, values);
        va_end(values);
        return text;
    }

    // Ends the operation with a fault. May be called on any stack.
    [[noreturn]] void fail(Fault with, std::string what) {
        fault = with;
        report = std::move(what);
        siglongjmp(escape, 1);
    }

    // Running threads call the functions below.

    void barrier(unsigned line) {
        Lane& lane = lanes[running];
        lane.state = AT_BARRIER;
        lane.line = line;
        waiting++;
        leave(lane);
    }

    const unsigned char* exchange(const void* bytes, unsigned size, unsigned line, void (*together)(unsigned char*)) {
        Lane& lane = lanes[running];
        Warp& warp = warps[running / 32];
        // The warp alternates between two buffers: once all threads write to one of them, all have read the other.
        unsigned char* place = warp.places[warp.turn];
        memcpy(place + 32 * (running % 32), bytes, size);
        if (warp.arrived > 0 && warp.line != line) {
            fail(LAUNCH_FAILED, format("threads of a warp exchange values at lines %u and %u at once", warp.line, line));
        }
        warp.line = line;
        if (++warp.arrived == 32) {
            if (together) together(place);
            warp.arrived = 0;
            warp.turn ^= 1;
            unsigned first = running / 32 * 32;
            for (unsigned i = first; i < first + 32; i++) lanes[i].state = READY;
        } else {
            lane.state = AT_EXCHANGE;
            lane.line = line;
            leave(lane);
        }
        return place;
    }

    void* shared(const void* tag, const char* name, size_t size) {
        size_t total = size;
        for (const Array& array : arrays) {
            if (array.tag == tag) return array.data;
            total += array.size;
        }
        if (total > 48 << 10) fail(INVALID_VALUE, format("%zu bytes of shared memory; a block has 49152", total));
        size_t i = arrays.size();
        if (i == mappings.size() || mappings[i]->room() < size) {
            auto mapping = std::make_unique<Mapping>(size);
            if (!mapping->valid() || !mapping->open(size)) fail(LAUNCH_FAILED, "no memory for shared memory");
            if (i == mappings.size()) mappings.emplace_back();
            mappings[i] = std::move(mapping);
        }
        arrays.push_back({tag, name, size, mappings[i]->data(size), mappings[i].get()});
        poison(arrays.back());
        return arrays.back().data;
    }

    void copy_async(void* target, const void* source, unsigned size, unsigned bytes) {
        // `size` is 4 or 16.
        if (((uintptr_t)target | (uintptr_t)source) & (size - 1)) {
            fail(MISALIGNED_ADDRESS, format("misaligned cp.async of %u bytes from %p to %p", size, source, target));
        }
        if (bytes > size) fail(INVALID_VALUE, format("cp.async of %u bytes of %u", bytes, size));
        std::vector<Copy>& copies = lanes[running].copies;
        copies.push_back({target, size, lanes[running].groups, {}});
        unsigned char* held = copies.back().bytes;
        // The two usual sizes compile to moves without a call.
        if (bytes == 4) memcpy(held, source, 4);
        else if (bytes == 16) memcpy(held, source, 16);
        else memcpy(held, source, bytes);
        if (size == 4) memset(target, POISON, 4);
        else memset(target, POISON, 16);
    }

    void copy_commit() { lanes[running].groups++; }

    void copy_wait(unsigned groups) {
        Lane& lane = lanes[running];
        size_t kept = 0;
        for (Copy& copy : lane.copies) {
            if (copy.group + groups >= lane.groups) lane.copies[kept++] = copy;
            else if (copy.size == 4) memcpy(copy.target, copy.bytes, 4);
            else memcpy(copy.target, copy.bytes, 16);
        }
        lane.copies.resize(kept);
    }

    void atomic(EmulatorAtomic operation, void* place, unsigned long long value) {
        unsigned size = operation == EMULATOR_ADD_LONG ? 8 : 4;
        if ((uintptr_t)place & (size - 1)) {
            fail(MISALIGNED_ADDRESS, format("misaligned atomic operation on %u bytes at %p", size, place));
        }
        if (!writes.watching()) return emulator_apply_atomic(operation, place, value);
        // This read faults if the address is invalid. Otherwise the fault would come only when the addition is applied.
        (void)*(volatile const char*)place;
        writes.add(number, operation, place, value);
    }

    void check_row(const void* row) {
        if ((uintptr_t)row & 15) fail(MISALIGNED_ADDRESS, format("misaligned row of a matrix at %p", row));
    }

private:
    enum State : unsigned char { READY, AT_EXCHANGE, AT_BARRIER, DONE };

    struct Copy {
        void* target;
        unsigned size, group;
        unsigned char bytes[16];
    };
    struct Lane {
        State state;
        unsigned line;
        // The number of the thread's stack (-1 before its start), and the stack pointer with which it continues.
        int fiber;
        void* left;
        unsigned groups;
        std::vector<Copy> copies;
    };
    struct Warp {
        alignas(16) unsigned char places[2][32 * 32];
        unsigned turn, arrived, line;
    };
    struct Array {
        const void* tag;
        const char* name;
        size_t size;
        char* data;
        const Mapping* mapping;
    };

    const EmulatorKernel* kernel = nullptr;
    void** arguments = nullptr;
    Order order = ALTERNATING;
    unsigned count = 0, running = 0, waiting = 0, ended = 0;
    // The number of the running block, and all numbers in the order in which blocks run.
    unsigned number = 0;
    std::vector<unsigned> numbers;
    Writes writes;
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    std::vector<Array> arrays;
    std::vector<std::unique_ptr<Mapping>> mappings;
    Stacks stacks;
    // The stacks whose thread has ended. `started` stacks are free or in use.
    std::vector<std::pair<int, void*>> free_fibers;
    unsigned started = 0;
    void* scheduler = nullptr;

    EmulatorDim place(unsigned i) const {
        return {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
    }

    static void poison(Array& array) { memset(array.data, POISON, (array.size + 15) & ~(size_t)15); }

    void shuffle(unsigned blocks, unsigned long long seed) {
        numbers.resize(blocks);
        for (unsigned i = 0; i < blocks; i++) {
            // One step of the generator splitmix64.
            unsigned long long mixed = seed += 0x9e3779b97f4a7c15;
            mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
            mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
            unsigned other = (unsigned)((mixed ^ mixed >> 31) % (i + 1));
            numbers[i] = numbers[other];
            numbers[other] = i;
        }
    }

    void run_block() {
        for (Lane& lane : lanes) {
            lane.state = READY;
            lane.fiber = -1;
            lane.groups = 0;
            lane.copies.clear();
        }
        for (Warp& warp : warps) warp.turn = warp.arrived = 0;
        for (Array& array : arrays) poison(array);
        waiting = ended = 0;
        for (unsigned phase = number;; phase++) {
            bool backwards = order == DESCENDING || (order == ALTERNATING && phase % 2);
            for (unsigned w = 0; w < warps.size(); w++) {
                run_warp(backwards ? (unsigned)warps.size() - 1 - w : w, backwards);
            }
            if (ended == count) return;
            running = count;
            if (waiting < count) fail(LAUNCH_FAILED, stuck());
            for (Lane& lane : lanes) {
                if (lane.line != lanes[0].line) {
                    fail(LAUNCH_FAILED, format("threads of a block wait at the barriers of lines %u and %u at once",
                                               lanes[0].line, lane.line));
                }
                lane.state = READY;
            }
            waiting = 0;
        }
    }

    void run_warp(unsigned warp, bool backwards) {
        unsigned first = 32 * warp, end = first + 32 < count ? first + 32 : count;
        for (bool moved = true; moved;) {
            moved = false;
            for (unsigned i = first; i < end; i++) {
                unsigned lane = backwards ? first + end - 1 - i : i;
                if (lanes[lane].state != READY) continue;
                resume(lane);
                moved = true;
            }
        }
    }

    void resume(unsigned i) {
        Lane& lane = lanes[i];
        if (lane.fiber < 0) {
            if (free_fibers.empty()) {
                lane.fiber = (int)started++;
                lane.left = stacks.fresh((unsigned)lane.fiber, loop);
            } else {
                lane.fiber = free_fibers.back().first;
                lane.left = free_fibers.back().second;
                free_fibers.pop_back();
            }
            *stacks.thread((unsigned)lane.fiber) = {place(i), i, this};
        }
        running = i;
        emulator_switch(&scheduler, lane.left);
    }

    void leave(Lane& lane) { emulator_switch(&lane.left, scheduler); }

    // Runs one thread after another. It is the first function on every stack.
    static void loop() {
        for (;;) {
            Runner& runner = of_thread();
            runner.kernel->run(runner.arguments);
            runner.end();
        }
    }

    void end() {
        unsigned fiber = (unsigned)lanes[running].fiber;
        lanes[running].state = DONE;
        ended++;
        free_fibers.push_back({(int)fiber, nullptr});
        emulator_switch(&free_fibers.back().second, scheduler);
    }

    // Returns the reason why no thread of the block can continue.
    std::string stuck() const {
        std::string text;
        unsigned exchanging = 0, line = 0;
        for (const Lane& lane : lanes) {
            if (lane.state == AT_EXCHANGE) exchanging++, line = lane.line;
        }
        if (exchanging) text += format("%u threads wait at line %u for the other threads of their warps; ", exchanging, line);
        for (const Lane& lane : lanes) {
            if (lane.state == AT_BARRIER) {
                text += format("%u threads wait at the barrier of line %u; ", waiting, lane.line);
                break;
            }
        }
        return text + format("%u threads have ended", ended);
    }
};

}  // namespace emulator
