// Declarations that kernels' shared objects and the emulator's libcuda share. They include no headers, so that kernels compile fast.

#pragma once

struct EmulatorDim {
    unsigned x, y, z;
};

// The state that the threads of a running block share.
struct EmulatorBlock {
    EmulatorDim index, threads, grid;
};

// A running thread. This object is at the top of the thread's stack. Stacks are aligned to their size, so code finds its thread from any
// address on the stack, without a thread-local variable that each switch would have to set.
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

// The description of a kernel. EMULATOR_EXPORT defines it as the kernel's name and `_emulator`, where cuModuleGetFunction finds it.
struct EmulatorKernel {
    const char* name;
    // The number of threads of a block that EMULATOR_KERNEL gives.
    unsigned threads;
    unsigned arguments;
    // For each argument: its size in bytes, true if it is a pointer, and true if the kernel writes through it.
    const unsigned* sizes;
    const bool* pointers;
    const bool* written;
    // Runs one thread.
    void (*run)(void** arguments);
};

// The atomic operations of kernels, on one word or on two.
enum EmulatorAtomic : unsigned { EMULATOR_ADD, EMULATOR_MAX, EMULATOR_ADD_LONG };

static inline void emulator_apply_atomic(EmulatorAtomic operation, void* place, unsigned long long value) {
    unsigned* word = (unsigned*)place;
    if (operation == EMULATOR_ADD_LONG) *(unsigned long long*)place += value;
    else if (operation == EMULATOR_ADD) *word += (unsigned)value;
    else if (*word < (unsigned)value) *word = (unsigned)value;
}

extern "C" {
// Only running threads call the functions below. `line` is the line of the call in the kernel's source.

// Waits for the block's other threads: __syncthreads.
void emulator_barrier(unsigned line);
// Stores `size` (at most 32) bytes of this thread, waits for all 32 threads of the warp, and returns the bytes of all, 32 for each
// thread. `together`, if given, is called once on these bytes before they are returned.
const unsigned char* emulator_exchange(const void* bytes, unsigned size, unsigned line, void (*together)(unsigned char*));
// Returns the address of the array `tag` in the block's shared memory.
void* emulator_shared(const void* tag, const char* name, unsigned long size);
// Starts cp.async of `size` bytes: the first `bytes` bytes come from `global`, the others are 0.
void emulator_copy_async(void* shared, const void* global, unsigned size, unsigned bytes);
void emulator_copy_commit();
void emulator_copy_wait(unsigned groups);
void emulator_atomic(EmulatorAtomic operation, void* place, unsigned long long value);
// Fails unless the row of a matrix is aligned to 16 bytes.
void emulator_check_row(const void* row);
}
