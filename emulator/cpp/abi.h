// Declarations for kernels' shared objects and the emulator's libcuda. No headers: kernels compile fast.

#pragma once

struct EmulatorDim {
    unsigned x, y, z;
};

// State that the threads of a running block share.
struct EmulatorBlock {
    EmulatorDim index, threads, grid;
};

// A running thread. It stands at the top of the thread's stack, which is aligned to its size, so that code finds its
// thread from any address on the stack: no thread-local variable, and a switch changes none.
struct EmulatorThread {
    EmulatorDim index;
    unsigned number;
    EmulatorBlock* block;
};

constexpr unsigned long EMULATOR_STACK = 64 << 10;

static inline __attribute__((always_inline)) EmulatorThread* emulator_thread() {
    unsigned long end = ((unsigned long)__builtin_frame_address(0) | (EMULATOR_STACK - 1)) + 1;
    return (EmulatorThread*)end - 1;
}

// EMULATOR_EXPORT leaves this for cuModuleGetFunction under the kernel's name and `_emulator`.
struct EmulatorKernel {
    const char* name;
    // Threads of a block, as EMULATOR_KERNEL says.
    unsigned threads;
    unsigned arguments;
    // Bytes of each argument, whether it is a pointer, and one through which is written.
    const unsigned* sizes;
    const bool* pointers;
    const bool* written;
    // Runs one thread.
    void (*run)(void** arguments);
};

// Operations of kernels on a word, or two, that other blocks change too.
enum EmulatorAtomic : unsigned { EMULATOR_ADD, EMULATOR_MAX, EMULATOR_ADD_LONG };

static inline void emulator_apply_atomic(EmulatorAtomic operation, void* place, unsigned long long value) {
    unsigned* word = (unsigned*)place;
    if (operation == EMULATOR_ADD_LONG) *(unsigned long long*)place += value;
    else if (operation == EMULATOR_ADD) *word += (unsigned)value;
    else if (*word < (unsigned)value) *word = (unsigned)value;
}

extern "C" {
// The rest is called by running threads alone; `line` is that of the call in the kernel's source.

// __syncthreads.
void emulator_barrier(unsigned line);
// Leaves `size` (at most 32) bytes, waits for all 32 threads of the warp, and returns what they left, 32 bytes each, or what
// `together`, called once for all, has made of that.
const unsigned char* emulator_exchange(const void* bytes, unsigned size, unsigned line, void (*together)(unsigned char*));
// The place of the array that `tag` stands for in the block's shared memory.
void* emulator_shared(const void* tag, const char* name, unsigned long size);
// cp.async of `size` bytes: `bytes` from `global`, then zeros.
void emulator_copy_async(void* shared, const void* global, unsigned size, unsigned bytes);
void emulator_copy_commit();
void emulator_copy_wait(unsigned groups);
void emulator_atomic(EmulatorAtomic operation, void* place, unsigned long long value);
// Fails unless a matrix's row is aligned to 16 bytes.
void emulator_check_row(const void* row);
}
