// Stacks of running CUDA threads, and the switch between stacks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"

// Saves the current stack pointer in `from`, and continues on the stack whose pointer `to` was saved.
extern "C" void emulator_switch(void** from, void* to);

namespace emulator {

// Stacks of EMULATOR_STACK bytes, which are aligned to their size. The lowest page of each stack is inaccessible.
class Stacks {
public:
    static constexpr unsigned COUNT = 1024;

    ~Stacks() {
        if (region) munmap(region, BYTES);
    }

    // Returns the thread at the top of stack `i`.
    EmulatorThread* thread(unsigned i) { return (EmulatorThread*)(stack(i) + EMULATOR_STACK) - 1; }

    // Returns true if an address is in the inaccessible page of a stack.
    bool past_the_end(uintptr_t address) const {
        uintptr_t start = (uintptr_t)region;
        return region && address >= start && address < start + BYTES && address % EMULATOR_STACK < (uintptr_t)sysconf(_SC_PAGESIZE);
    }

    // Returns a stack pointer with which emulator_switch enters `start` on stack `i`. `start` must not return.
    void* fresh(unsigned i, void (*start)()) {
        if (i >= ready) prepare(i);
        // Stack pointers at equal offsets would share a few sets of the cache, so offsets differ by stack.
        char* top = (char*)thread(i) - 16 - (i * 208) % 8192;
        top = (char*)((uintptr_t)top & ~(uintptr_t)15);
#if defined(__x86_64__)
        void** place = (void**)top - 8;
        memset(place, 0, 8 * sizeof *place);
        place[6] = (void*)start;
#else
        void** place = (void**)(top - 160);
        memset(place, 0, 160);
        place[11] = (void*)start;
#endif
        return place;
    }

private:
    // The mapping has room for one more stack, so that stacks can be aligned.
    static constexpr size_t BYTES = (COUNT + 1) * EMULATOR_STACK;
    char* region = nullptr;
    unsigned ready = 0;

    char* stack(unsigned i) {
        uintptr_t first = ((uintptr_t)region + EMULATOR_STACK - 1) & ~(uintptr_t)(EMULATOR_STACK - 1);
        return (char*)first + i * EMULATOR_STACK;
    }

    void prepare(unsigned i) {
        if (!region) {
            void* place = mmap(nullptr, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (place == MAP_FAILED) abort();
            region = (char*)place;
        }
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        for (; ready <= i; ready++) {
            if (mprotect(stack(ready) + page, EMULATOR_STACK - page, PROT_READ | PROT_WRITE) != 0) abort();
        }
    }
};

}  // namespace emulator
