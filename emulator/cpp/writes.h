// Keeps the writes of a launch's blocks apart, as if all blocks ran at once.
//
// Blocks run in two halves, and each block sees memory as it was before its half. A block that relies on a write of its own half misses
// that write, and a block of the second half may find a write that it should not see yet. Pages are read-only until a block writes to
// them. A block's changes are recorded and undone when it ends, and applied when its half ends. Bytes that two blocks change are a
// conflict, except by atomic additions.

#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "abi.h"
#include "memory.h"

namespace emulator {

class Writes {
public:
    // A byte that two blocks change. `atomic` is true if the second block does so by an atomic operation.
    struct Conflict {
        uintptr_t at;
        unsigned first, second;
        bool atomic;
    };

    // Starts watching these mappings.
    void begin(const std::vector<const Mapping*>& of) {
        ranges.clear();
        for (const Mapping* mapping : of) ranges.push_back({mapping, mapping->start(), mapping->room()});
        for (unsigned i = 0; i < MOST && i < ranges.size(); i++) publish(ranges[i]);
        runs.clear();
        deltas.clear();
        additions.clear();
        applied_runs = applied_additions = 0;
        protect(PROT_READ);
        active = true;
    }

    bool watching() const { return active; }

    // Handles a fault. Returns true if it was the block's first write to some pages, which are then writable.
    bool first_write(uintptr_t address) {
        if (!active) return false;
        for (const Range& range : ranges) {
            size_t offset = address - (uintptr_t)range.start;
            if (offset >= range.bytes || !range.mapping->is_open()) continue;
            offset -= offset % pages_bytes();
            Pages pages = {range.start + offset, std::min(pages_bytes(), range.bytes - offset)};
            if (copies.size() == dirty.size()) copies.emplace_back(new char[pages_bytes()]);
            memcpy(copies[dirty.size()].get(), pages.start, pages.bytes);
            dirty.push_back(pages);
            return mprotect(pages.start, pages.bytes, PROT_READ | PROT_WRITE) == 0;
        }
        return false;
    }

    // Returns true if a launch on another thread watches an address, so that the caller has to wait for its end.
    static bool watched(uintptr_t address) {
        for (unsigned i = 0; i < MOST; i++) {
            uintptr_t start = everywhere[i].start;
            if (start && address - start < everywhere[i].bytes) return true;
        }
        return false;
    }

    void add(unsigned block, EmulatorAtomic operation, void* place, unsigned long long value) {
        additions.push_back({(uintptr_t)place, value, block, operation});
    }

    // Records the changes of a block, and undoes them.
    void end_block(unsigned block) {
        for (size_t i = 0; i < dirty.size(); i++) {
            compare(dirty[i], (const unsigned*)copies[i].get(), block);
            memcpy(dirty[i].start, copies[i].get(), dirty[i].bytes);
        }
        close();
    }

    // Applies the changes of all ended blocks, so that later blocks see them. Makes pages writable through faults.
    void apply() {
        for (; applied_runs < runs.size(); applied_runs++) {
            const Run& run = runs[applied_runs];
            for (unsigned i = 0; i < run.words; i++) ((unsigned*)run.at)[i] ^= deltas[run.first + i];
        }
        for (; applied_additions < additions.size(); applied_additions++) {
            const Addition& addition = additions[applied_additions];
            emulator_apply_atomic(addition.operation, (void*)addition.at, addition.value);
        }
        if (active) close();
    }

    // Stops watching. Changes that are not applied by a later call of `apply` are lost.
    void end() {
        if (!active) return;
        active = false;
        dirty.clear();
        protect(PROT_READ | PROT_WRITE);
        for (const Range& range : ranges) retract(range);
    }

    // Finds the first conflict of the last launch in order of addresses. Returns false if there is none.
    bool conflict(Conflict& found) {
        std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.at < b.at; });
        // The run that ends last, of the runs so far.
        const Run* last = nullptr;
        for (const Run& run : runs) {
            if (last && run.at < last->end() && meet(*last, run, found)) return true;
            if (!last || run.end() > last->end()) last = &run;
        }
        for (const Addition& addition : additions) {
            auto next = std::upper_bound(runs.begin(), runs.end(), addition.at,
                                         [](uintptr_t at, const Run& run) { return at < run.at; });
            if (next == runs.begin()) continue;
            const Run& run = *std::prev(next);
            if (addition.at < run.end() && run.block != addition.block) {
                found = {addition.at, run.block, addition.block, true};
                return true;
            }
        }
        return false;
    }

private:
    struct Range {
        const Mapping* mapping;
        char* start;
        size_t bytes;
    };
    // Adjacent words that a block has changed. `deltas` has the exclusive or of old and new words.
    struct Run {
        uintptr_t at;
        unsigned words, block;
        size_t first;

        uintptr_t end() const { return at + 4 * words; }
    };
    struct Pages {
        char* start;
        size_t bytes;
    };
    struct Addition {
        uintptr_t at;
        unsigned long long value;
        unsigned block;
        EmulatorAtomic operation;
    };
    struct Shared {
        std::atomic<uintptr_t> start;
        std::atomic<size_t> bytes;
    };
    // The maximum number of ranges that all threads together publish: written arguments of running launches. Copies do not wait for
    // further ranges.
    static constexpr unsigned MOST = 256;
    static inline Shared everywhere[MOST];

    bool active = false;
    std::vector<Range> ranges;
    // The pages that the running block has written to, and copies of their old bytes. There may be unused copies.
    std::vector<Pages> dirty;
    std::vector<std::unique_ptr<char[]>> copies;
    std::vector<Run> runs;
    std::vector<unsigned> deltas;
    std::vector<Addition> additions;
    size_t applied_runs = 0, applied_additions = 0;

    void protect(int how) {
        for (const Range& range : ranges) mprotect(range.start, range.bytes, how);
    }

    // Makes the block's writable pages read-only again.
    void close() {
        for (size_t i = 0; i < dirty.size();) {
            // Adjacent pages take one call.
            Pages side = dirty[i++];
            for (; i < dirty.size() && dirty[i].start == side.start + side.bytes; i++) side.bytes += dirty[i].bytes;
            mprotect(side.start, side.bytes, PROT_READ);
        }
        dirty.clear();
    }

    static void publish(const Range& range) {
        for (Shared& shared : everywhere) {
            uintptr_t free = 0;
            if (!shared.start.compare_exchange_strong(free, (uintptr_t)range.start)) continue;
            shared.bytes = range.bytes;
            return;
        }
    }

    static void retract(const Range& range) {
        for (Shared& shared : everywhere) {
            if (shared.start != (uintptr_t)range.start) continue;
            shared.bytes = 0;
            shared.start = 0;
            return;
        }
    }

    // The number of bytes that a fault makes writable. More pages mean fewer faults, but unwritten pages cost a copy and a comparison.
    static size_t pages_bytes() { return 4 * page_size(); }

    void compare(const Pages& pages, const unsigned* was, unsigned block) {
        const unsigned* now = (const unsigned*)pages.start;
        size_t words = pages.bytes / 4;
        bool open = false;
        for (size_t i = 0; i < words; i++) {
            if (now[i] == was[i]) {
                open = false;
                continue;
            }
            if (!open) runs.push_back({(uintptr_t)(now + i), 0, block, deltas.size()});
            open = true;
            runs.back().words++;
            deltas.push_back(now[i] ^ was[i]);
        }
    }

    // Returns true if two overlapping runs have changed the same byte.
    bool meet(const Run& first, const Run& second, Conflict& found) const {
        if (first.block == second.block) return false;
        uintptr_t end = std::min(first.end(), second.end());
        for (uintptr_t at = second.at; at < end; at += 4) {
            unsigned a = deltas[first.first + (at - first.at) / 4];
            unsigned b = deltas[second.first + (at - second.at) / 4];
            for (unsigned byte = 0; byte < 4; byte++) {
                if ((a >> 8 * byte & 0xff) == 0 || (b >> 8 * byte & 0xff) == 0) continue;
                found = {at + byte, first.block, second.block, false};
                return true;
            }
        }
        return false;
    }
};

}  // namespace emulator
