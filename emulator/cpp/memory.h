// Device memory. It is poisoned until it is written, and inaccessible beyond its ends.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {

constexpr int POISON = 0xAB;

inline size_t page_size() {
    static const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    return size;
}

// The inaccessible bytes at each end of a mapping: even a badly wrong index rarely jumps over them.
constexpr size_t GUARD = 1 << 30;

// A mapping between two guards. Its data end at the second guard, up to the alignment to 16 bytes.
class Mapping {
public:
    // Reserves room for `bytes` bytes. `valid` returns false if the system refused.
    explicit Mapping(size_t bytes) : inner((bytes + page_size() - 1) / page_size() * page_size()) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* place = mmap(nullptr, inner + 2 * GUARD, PROT_NONE, flags, -1, 0);
        base = place == MAP_FAILED ? nullptr : (char*)place;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (base) munmap(base, inner + 2 * GUARD);
    }

    bool valid() const { return base; }
    // Returns the address of `bytes` bytes at the end of the mapping. They have to fit.
    char* data(size_t bytes) const { return base + GUARD + inner - ((bytes + 15) & ~(size_t)15); }
    size_t room() const { return inner; }
    // Returns the start of the pages.
    char* start() const { return base + GUARD; }
    bool is_open() const { return opened; }
    // Returns true if an address is in the mapping or its guards.
    bool spans(uintptr_t address) const { return address - (uintptr_t)base < inner + 2 * GUARD; }

    // Makes the pages accessible, and poisons the last `bytes` bytes. Returns false if the system refuses.
    bool open(size_t bytes) {
        if (mprotect(base + GUARD, inner, PROT_READ | PROT_WRITE) != 0) return false;
        opened = true;
        memset(data(bytes), POISON, base + GUARD + inner - data(bytes));
        return true;
    }

    // Makes the pages inaccessible, and returns them to the system.
    void close() {
        opened = false;
        mprotect(base + GUARD, inner, PROT_NONE);
        madvise(base + GUARD, inner, MADV_DONTNEED);
    }

private:
    char* base;
    size_t inner;
    bool opened = false;
};

}  // namespace emulator
