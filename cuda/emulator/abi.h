// What a kernel's shared object and the emulator's libcuda know of each other. No headers: kernels compile fast.

#pragma once

struct EmulatorDim {
    unsigned x, y, z;
};

// What the threads of a running block share.
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

// What EXPORT leaves for cuModuleGetFunction under the kernel's name and `_emulator`.
struct EmulatorKernel {
    const char* name;
    // Threads of a block, as KERNEL says.
    unsigned threads;
    unsigned arguments;
    // Bytes of each argument, and whether it is a pointer.
    const unsigned* sizes;
    const bool* pointers;
    // Runs one thread.
    void (*run)(void** arguments);
};

extern "C" {
// The rest is called by running threads alone; `line` is that of the call in the kernel's source.

// __syncthreads.
void emulator_barrier(unsigned line);
// Leaves `size` (at most 32) bytes, waits for all 32 threads of the warp, and returns what they left, 32 bytes each.
const unsigned char* emulator_exchange(const void* bytes, unsigned size, unsigned line);
// The place of the array that `tag` stands for in the block's shared memory.
void* emulator_shared(const void* tag, const char* name, unsigned long size);
// cp.async of `size` bytes: `bytes` from `global`, then zeros.
void emulator_copy_async(void* shared, const void* global, unsigned size, unsigned bytes);
void emulator_copy_commit();
void emulator_copy_wait(unsigned groups);
}
