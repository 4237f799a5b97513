// Memory that is what it should not be until it is written, and inaccessible past its ends.

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

// Bytes at both ends of a mapping that nobody can read or write: a wrong index, even a wild one, seldom jumps over them.
constexpr size_t GUARD = 1 << 30;

// A mapping between guards. Bytes in it end at the second, but for the alignment to 16.
class Mapping {
public:
    // Reserves room for `bytes`; `valid` is false where the machine refuses.
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
    // Where `bytes`, at most as many as it has room for, stand against its end.
    char* data(size_t bytes) const { return base + GUARD + inner - ((bytes + 15) & ~(size_t)15); }
    size_t room() const { return inner; }
    // Where its pages start, and whether they are accessible.
    char* start() const { return base + GUARD; }
    bool is_open() const { return opened; }
    // Whether an address is in it or its guards.
    bool spans(uintptr_t address) const { return address - (uintptr_t)base < inner + 2 * GUARD; }

    // Makes its bytes accessible and fills the last `bytes` with poison; false where the machine refuses.
    bool open(size_t bytes) {
        if (mprotect(base + GUARD, inner, PROT_READ | PROT_WRITE) != 0) return false;
        opened = true;
        memset(data(bytes), POISON, base + GUARD + inner - data(bytes));
        return true;
    }

    // Makes its bytes inaccessible and gives them back to the machine.
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
