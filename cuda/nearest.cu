// Keeps the k items with the smallest sums of each line, in order. A launch offers some of the items.
// Grid: linear, one block per line.
// Bindings: 0 sums (pairs) of two words each read; 1 undefined_lines u32 read; 2 undefined_items u32 read; 3 kept_sums (lines, k) pairs read_write; 4 kept_numbers (lines, k) u32 read_write; 5 params, steps and starts in sums and flags.
// Constants: WG; MOST_KEPT the largest k; WIDE a sum is an f64, otherwise an f32 and its rounding error; PLAIN the sums of binding 0 are one f32 each.
// Hardware: a thread has LOADS sums in flight, and most steps end with one test of all of them against the last of the list. Sums are
// compared in f64, which holds an f32 and its rounding error.

#include "dev.cuh"

constexpr u32 WG = 64;
constexpr u32 MOST_KEPT = 256;
constexpr u32 WIDE = 0;
constexpr u32 PLAIN = 0;

// The number of items of a thread whose loads are in flight at once: 64 bytes.
constexpr u32 LOADS = PLAIN == 1 ? 16 : 8;
// The bits of a NaN in f64.
constexpr u64 NOTHING = 0x7ff8000000000000u;
// The index that means no item.
constexpr u32 NOWHERE = 0xffffffffu;

// A sum as stored.
template <bool> struct Stored {
    typedef float2 Sum;
    DEVICE double value(Sum sum) { return (double)sum.x + (double)sum.y; }
    // Returns the nearest f32. This keeps the order of sums.
    DEVICE float near_value(Sum sum) { return sum.x + sum.y; }
    DEVICE Sum none() { return make_float2(bits_float(0x7fc00000u), 0.0f); }
    DEVICE Sum exact(float value) { return make_float2(value, 0.0f); }
};
template <> struct Stored<true> {
    typedef double Sum;
    DEVICE double value(Sum sum) { return sum; }
    DEVICE float near_value(Sum sum) { return (float)sum; }
    DEVICE Sum none() { return bits_double(NOTHING); }
    DEVICE Sum exact(float value) { return value; }
};
typedef Stored<WIDE == 1> In;
typedef In::Sum Sum;

// A sum as binding 0 gives it.
template <bool> struct GivenAs {
    typedef Sum Type;
    DEVICE Sum sum(Type given) { return given; }
};
template <> struct GivenAs<true> {
    typedef float Type;
    DEVICE Sum sum(Type given) { return In::exact(given); }
};
typedef GivenAs<PLAIN == 1> Given;

// Items in shared memory: their keys, which are NaN for NaN sums, their sums and their indices.
struct List {
    double* keys;
    Sum* sums;
    u32* numbers;
};

// The items that a line is offered: from `first` to `end - 1`, without the item of index `skipped`.
struct Line {
    const Given::Type* sums;
    u32 first;
    u32 end;
    u32 skipped;
    bool is_undefined;
};

// Returns true if the first of two items is nearer. A NaN sum is the farthest. Of equal items, the one with the lower index is nearer.
DEVICE bool precedes(double a, u32 a_number, double b, u32 b_number) {
    bool a_is_nan = a != a;
    bool b_is_nan = b != b;
    if (a_is_nan != b_is_nan) return b_is_nan;
    return a < b || ((a == b || a_is_nan) && a_number < b_number);
}

DEVICE double key_of(Sum sum, const Params& params) {
    double value = In::value(sum);
    double low = bits_float(params.low);
    double high = bits_float(params.high);
    // NaN is neither below nor above.
    if (value < low) value = low;
    if (value > high) value = high;
    return params.falling == 1 ? -value : value;
}

DEVICE Line line_of(const Given::Type* sums, const u32* undefined, u32 line, const Params& params) {
    u32 number = params.line0 + line;
    u32 below = number > params.item0 ? min(number - params.item0, params.items) : 0;
    Line all = {sums + params.sums0 + line * params.line_step, 0, params.items, NOWHERE, undefined[params.line_flags0 + line] != 0};
    if (params.offered != ALL) all.skipped = number;
    if (params.offered == BELOW) all.end = below;
    if (params.offered == ABOVE) all.first = below;
    return all;
}

DEVICE void put(const List& list, u32 i, double key, Sum sum, u32 number) {
    list.keys[i] = key;
    list.sums[i] = sum;
    list.numbers[i] = number;
}

// Returns true if `holds` is true for any thread of the block. Flags of two turns are separate, so that no thread overwrites an unread flag.
DEVICE bool block_any(bool holds, u32* flags, u32& turn) {
    u32* own = flags + turn % 2 * (WG / WARP);
    turn++;
    bool any = warp_any(holds);
    if (threadIdx.x % WARP == 0) own[threadIdx.x / WARP] = any ? 1 : 0;
    __syncthreads();
    u32 all = 0;
    for (u32 warp = 0; warp < WG / WARP; warp++) all |= own[warp];
    return all != 0;
}

// Returns the number of candidates, which are unordered, that are nearer than an item.
DEVICE u32 candidates_before(const List& found, double key, u32 number) {
    u32 count = 0;
    for (u32 i = 0; i < WG; i++) count += precedes(found.keys[i], found.numbers[i], key, number) ? 1 : 0;
    return count;
}

// Returns the number of items of the ordered list that are nearer than an item.
DEVICE u32 kept_before(const List& list, u32 k, double key, u32 number) {
    u32 low = 0;
    u32 high = k;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (precedes(list.keys[middle], list.numbers[middle], key, number)) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Writes the first k of a list and the candidates to another list.
DEVICE void merge(const List& list, const List& found, const List& next, u32 k) {
    double key = found.keys[threadIdx.x];
    u32 number = found.numbers[threadIdx.x];
    if (number != NOWHERE) {
        u32 place = candidates_before(found, key, number) + kept_before(list, k, key, number);
        if (place < k) put(next, place, key, found.sums[threadIdx.x], number);
    }
    for (u32 i = threadIdx.x; i < k; i += WG) {
        u32 place = i + candidates_before(found, list.keys[i], list.numbers[i]);
        if (place < k) put(next, place, list.keys[i], list.sums[i], list.numbers[i]);
    }
    __syncthreads();
}

// Writes item `item` to the candidates if it is nearer than the last of the list, and otherwise an empty place.
DEVICE bool propose(const Line& line, const u32* undefined, u32 item, const List& list, const List& found, const Params& params) {
    u32 number = params.item0 + item;
    double key = bits_double(NOTHING);
    Sum sum = In::none();
    bool is_near = item < line.end && number != line.skipped;
    if (is_near) {
        Sum own = Given::sum(line.sums[item * params.item_step]);
        double value = key_of(own, params);
        if (!line.is_undefined && undefined[params.item_flags0 + item] == 0 && value == value) {
            key = value;
            sum = own;
        }
        is_near = precedes(key, number, list.keys[params.k - 1], list.numbers[params.k - 1]);
    }
    if (is_near) put(found, threadIdx.x, key, sum, number);
    // An empty place precedes no item.
    else put(found, threadIdx.x, bits_double(NOTHING), sum, NOWHERE);
    return is_near;
}

// Returns true if an item of the step may be nearer than the list's last. Beyond the end, the last item is tested again. Undefined items
// and the line's own are not excluded.
DEVICE bool may_be_near(const Line& line, u32 start, const List& list, const Params& params) {
    Sum own[LOADS];
#pragma unroll
    for (u32 i = 0; i < LOADS; i++) {
        u32 item = min(start + i * WG + threadIdx.x, line.end - 1);
        own[i] = Given::sum(line.sums[item * params.item_step]);
    }
    double last = list.keys[params.k - 1];
    u32 last_number = list.numbers[params.k - 1];
    bool some = false;
    if constexpr (WIDE == 0) {
        // No arithmetic in f64, which is slow on most cards, is needed if the f32 next to a sum is beyond that of the last. NaN is not near.
        if (is_finite(last) && !line.is_undefined) {
            float bound = (float)last;
            float low = bits_float(params.low);
            float high = bits_float(params.high);
#pragma unroll
            for (u32 i = 0; i < LOADS; i++) {
                float key = In::near_value(own[i]);
                key = key < low ? low : key > high ? high : key;
                some |= (params.falling == 1 ? -key : key) <= bound;
            }
            return some;
        }
    }
#pragma unroll
    for (u32 i = 0; i < LOADS; i++) {
        u32 item = min(start + i * WG + threadIdx.x, line.end - 1);
        double key = line.is_undefined ? bits_double(NOTHING) : key_of(own[i], params);
        some |= precedes(key, params.item0 + item, last, last_number);
    }
    return some;
}

KERNEL(nearest, WG)(const void* __restrict__ sums, const u32* __restrict__ undefined_lines, const u32* __restrict__ undefined_items, void* __restrict__ kept_sums, u32* __restrict__ kept_numbers, Params params) {
    u32 number = linear_block();
    if (number >= params.lines) return;
    SHARED(double, keys, 2 * MOST_KEPT + WG);
    SHARED(Sum, shared_sums, 2 * MOST_KEPT + WG);
    SHARED(u32, numbers, 2 * MOST_KEPT + WG);
    SHARED(u32, flags, 2 * (WG / WARP));
    List list = {keys, shared_sums, numbers};
    List next = {keys + MOST_KEPT, shared_sums + MOST_KEPT, numbers + MOST_KEPT};
    List found = {keys + 2 * MOST_KEPT, shared_sums + 2 * MOST_KEPT, numbers + 2 * MOST_KEPT};

    u32 k = params.k;
    Sum* own_sums = (Sum*)kept_sums + params.kept0 + number * k;
    u32* own_numbers = kept_numbers + params.numbers0 + number * k;
    for (u32 i = threadIdx.x; i < k; i += WG) {
        Sum sum = params.fresh == 1 ? In::none() : own_sums[i];
        put(list, i, key_of(sum, params), sum, params.fresh == 1 ? NOWHERE : own_numbers[i]);
    }
    __syncthreads();

    Line line = line_of((const Given::Type*)sums, undefined_lines, number, params);
    u32 turn = 0;
    bool has_changed = params.fresh == 1;
    for (u32 start = line.first; start < line.end; start += WG * LOADS) {
        if (!block_any(may_be_near(line, start, list, params), flags, turn)) continue;
        u32 end = min(line.end, start + WG * LOADS);
        for (u32 at = start; at < end; at += WG) {
            bool is_near = propose(line, undefined_items, at + threadIdx.x, list, found, params);
            if (!block_any(is_near, flags, turn)) continue;
            merge(list, found, next, k);
            List before = list;
            list = next;
            next = before;
            has_changed = true;
        }
    }
    if (!has_changed) return;
    for (u32 i = threadIdx.x; i < k; i += WG) {
        own_sums[i] = list.sums[i];
        own_numbers[i] = list.numbers[i];
    }
}
EXPORT(nearest)
