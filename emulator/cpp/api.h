// The steps with which every function of the driver API begins and ends.

#pragma once

#include "device.h"

#define API extern "C" __attribute__((visibility("default"))) emulator::Code

namespace emulator {

// The stack of contexts of this host thread. The last one is current.
inline thread_local std::vector<Context*> current_contexts;

inline Context* current_context() { return current_contexts.empty() ? nullptr : current_contexts.back(); }

// Runs `body` while holding the lock. Fails before cuInit.
template <class F> Code initialized(F body) {
    State& state = State::get();
    Guard guard(state.lock);
    if (!state.initialized) return NOT_INITIALIZED;
    return body(guard, state);
}

// Runs `body` with the current context. Returns the context's error if it has one, also one that `body` caused.
template <class F> Code in_context(F body) {
    return initialized([&](Guard& guard, State& state) -> Code {
        Context* context = current_context();
        if (!context || !state.contexts.count(context)) return INVALID_CONTEXT;
        if (context->error) return context->error;
        Code code = body(guard, state, *context);
        return context->error ? context->error : code;
    });
}

// Runs `body` with a stream of the current context.
template <class F> Code in_stream(void* handle, F body) {
    return in_context([&](Guard& guard, State& state, Context& context) -> Code {
        // 0, 1 and 2 name the default stream, and 2 is a thread's own one.
        if ((uintptr_t)handle <= 2) return body(guard, state, context.null_stream);
        auto found = state.streams.find((Stream*)handle);
        if (found == state.streams.end() || found->second->context != &context) return INVALID_HANDLE;
        return body(guard, state, std::shared_ptr<Stream>(found->second));
    });
}

}  // namespace emulator
