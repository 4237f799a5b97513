// What the blocks of a launch write, kept from one another as if they ran at once.
//
// Each block finds memory as it was before its half of the blocks ran, so that what one block writes another has not, and
// one that comes later sees what it should have read before. Pages are read-only until a block writes there; what it has
// changed is noted and undone when it ends, and done when its half ends. Bytes that two blocks change, but for atomic
// additions, are a conflict.

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
    // Bytes that two blocks change; `atomic`: the second by an atomic operation.
    struct Conflict {
        uintptr_t at;
        unsigned first, second;
        bool atomic;
    };

    // Watches these mappings from now on.
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

    // Called by a fault: whether it was the block's first write to some pages, which it may now write to.
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

    // Whether another thread's launch watches an address, for who has to wait until it has ended.
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

    // Notes what a block has changed, and undoes it.
    void end_block(unsigned block) {
        for (size_t i = 0; i < dirty.size(); i++) {
            compare(dirty[i], (const unsigned*)copies[i].get(), block);
            memcpy(dirty[i].start, copies[i].get(), dirty[i].bytes);
        }
        close();
    }

    // Does what the blocks that have ended did; the others find it. Opens pages by faults.
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

    // Ends watching; what was not applied is lost, unless that follows.
    void end() {
        if (!active) return;
        active = false;
        dirty.clear();
        protect(PROT_READ | PROT_WRITE);
        for (const Range& range : ranges) retract(range);
    }

    // The first conflict of the launch that has ended, by address; false where there is none.
    bool conflict(Conflict& found) {
        std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.at < b.at; });
        // Of the runs so far the one that ends last.
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
    // Words that a block has changed one after another; what they differ by is in `deltas`.
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
    // As many as all threads together have arguments that are written; what is more is not waited for.
    static constexpr unsigned MOST = 256;
    static inline Shared everywhere[MOST];

    bool active = false;
    std::vector<Range> ranges;
    // Pages that the running block has written to, and what they were; there may be more copies than such pages.
    std::vector<Pages> dirty;
    std::vector<std::unique_ptr<char[]>> copies;
    std::vector<Run> runs;
    std::vector<unsigned> deltas;
    std::vector<Addition> additions;
    size_t applied_runs = 0, applied_additions = 0;

    void protect(int how) {
        for (const Range& range : ranges) mprotect(range.start, range.bytes, how);
    }

    // Makes the pages that were opened read-only again.
    void close() {
        for (size_t i = 0; i < dirty.size();) {
            // One call for those that stand side by side.
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

    // A fault opens so many: dense writes fault less often, and what is not written costs a copy and a comparison.
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

    // Whether two runs that share words have changed the same byte.
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
