// What tests ask of the emulator, by device, so that tests on several threads do not meet.

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

// A device's memory in bytes.
CONTROL(void) emulator_memory(int device, unsigned long long bytes) {
    control(device, [&](Device& of) { of.memory = bytes; });
}

// Makes the `nth` allocation from now fail, the next being 1; 0 none.
CONTROL(void) emulator_fail_allocation(int device, unsigned long long nth) {
    control(device, [&](Device& of) { of.failing = nth; });
}

// Makes a device answer every call with the error `code` once it has taken `launches` more; with `code` 0, never, and
// a lost one is found again by new contexts.
CONTROL(void) emulator_lose(int device, unsigned long long launches, int code) {
    control(device, [&](Device& of) {
        of.launches_left = launches;
        of.loss = code;
        of.lost = false;
    });
}

// The order of warps between barriers: 0 by turns, 1 up, 2 down.
CONTROL(void) emulator_order(int device, int order) {
    control(device, [&](Device& of) { of.order = (Order)order; });
}

// Begins a log of calls, and of what runs, on a device.
CONTROL(void) emulator_log_start(int device) {
    control(device, [&](Device& of) {
        of.logging = true;
        of.log.clear();
    });
}

// Ends it; the text is valid until the next call for the device.
CONTROL(const char*) emulator_log_take(int device) {
    return control(device, [&](Device& of) {
        of.logging = false;
        of.log_taken = std::move(of.log);
        of.log.clear();
        return of.log_taken.c_str();
    });
}

// What the last fault on a device was; valid until the next call for the device.
CONTROL(const char*) emulator_fault(int device) {
    return control(device, [&](Device& of) {
        of.fault_taken = of.fault;
        return of.fault_taken.c_str();
    });
}
