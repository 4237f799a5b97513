// The functions by which tests control the emulator. Each is for one device, so that tests on several threads do not interfere.

#include "device.h"

using namespace emulator;

#define CONTROL(type) extern "C" __attribute__((visibility("default"))) type

namespace {

template <class F> auto control(int device, F body) {
    State& state = State::get();
    Guard guard(state.lock);
    return body(state.devices[(unsigned)device % DEVICES]);
}

}  // namespace

// Sets the size of a device's memory in bytes.
CONTROL(void) emulator_memory(int device, unsigned long long bytes) {
    control(device, [&](Device& of) { of.memory = bytes; });
}

// Makes the `nth` allocation from now fail, where 1 is the next one. 0 cancels this.
CONTROL(void) emulator_fail_allocation(int device, unsigned long long nth) {
    control(device, [&](Device& of) { of.failing = nth; });
}

// Makes a device answer every call with the error `code` after `launches` more launches. A `code` of 0 cancels this, and contexts created
// later work again.
CONTROL(void) emulator_lose(int device, unsigned long long launches, int code) {
    control(device, [&](Device& of) {
        of.launches_left = launches;
        of.loss = code;
        of.lost = false;
    });
}

// Sets the order of warps between barriers: 0 alternates, 1 ascends, 2 descends.
CONTROL(void) emulator_order(int device, int order) {
    control(device, [&](Device& of) { of.order = (Order)order; });
}

// Starts a log of the calls for a device and of the operations that run on it.
CONTROL(void) emulator_log_start(int device) {
    control(device, [&](Device& of) {
        of.logging = true;
        of.log.clear();
    });
}

// Ends the log. The returned text is valid until the next call for the device.
CONTROL(const char*) emulator_log_take(int device) {
    return control(device, [&](Device& of) {
        of.logging = false;
        of.log_taken = std::move(of.log);
        of.log.clear();
        return of.log_taken.c_str();
    });
}

// Returns the last fault on a device. The text is valid until the next call for the device.
CONTROL(const char*) emulator_fault(int device) {
    return control(device, [&](Device& of) {
        of.fault_taken = of.fault;
        return of.fault_taken.c_str();
    });
}
