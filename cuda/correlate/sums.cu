// Sums of taps along an axis, of which those that are not finite are made again.

// Makes a sum that is not finite again, of elements divided by a power of two: none of those is beyond the type unless the result is. Where
// elements are infinite, their differences are no numbers, and the sum is that of elements and weights. Numbers of EVEN: on the left, sums
// of weights; in the middle, that of all; on the right, weights.
template <class At> DEVICE real sum_again(const real* weights, u32 count, u32 kind, At at) {
    const real scale = (real)4294967296.0;
    u32 end = count - 1, radius = count / 2;
    bool apart = kind == EVEN;
    real sum = 0, steps = 0, last = 0, centre = 0;
#pragma unroll 1
    for (u32 t = 0; t < count; t++) {
        real value = at(t) / scale;
        if (value != value) return value;
        real weight = weights[t < radius && kind != ANY ? end - t : t];
        if (kind == ODD && t < radius) weight = -weight;
        if (apart && t == radius) weight -= weights[radius - 1] + weights[radius - 1];
        sum = multiply_add(value, weight, sum);
        if (apart && t > 0) steps = multiply_add(t <= radius ? last - value : value - last, weights[t <= radius ? t - 1 : end - t], steps);
        if (t == radius) centre = value;
        last = value;
    }
    if (apart) steps = multiply_add(centre, weights[radius], steps);
    return (apart && is_finite(steps) ? steps : sum) * scale;
}

// Makes those of the sums of N neighbours again that are not finite.
template <u32 N, class At> DEVICE void make_finite(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    u32 again = 0;
    for (u32 k = 0; k < N; k++) again |= is_finite(sums[k]) ? 0 : 1u << k;
#pragma unroll 1
    for (u32 k = 0; again >> k; k++) {
        if (!(again >> k & 1)) continue;
        real sum = sum_again(weights, count, kind, [&](u32 t) { return at(k + t); });
        for (u32 i = 0; i < N; i++) sums[i] = i == k ? sum : sums[i];
    }
}

// The sums of taps of N neighbours, where `at(k + t)` is tap t of neighbour k: from the centre, then from the outermost to the
// innermost, those as far from the centre together; of weights without symmetry from the last, then from the first. EVEN: of each tap less
// that next to it towards the centre, and the centre at the end.
template <u32 N, int UNROLL, class At> DEVICE void sum_taps(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    u32 end = count - 1;
    u32 first = kind == ANY ? end : count / 2;
    bool apart = kind == EVEN;
    u32 one = apart;
    auto other = [&](real value) { return kind == ODD ? -value : kind == ANY ? 0 : value; };
    // Values of N neighbours go on by one at a time, in registers.
    real before[N] = {}, after[N] = {};
    auto forward = [](real (&values)[N], real next) {
        for (u32 k = 0; k + 1 < N; k++) values[k] = values[k + 1];
        values[N - 1] = next;
    };
    real left = at(0), right = at(end - one);
#pragma unroll UNROLL
    for (u32 k = 0; k < N; k++) {
        real next = at(k + one), last = at(end + k);
        forward(before, apart ? left - next : next);
        forward(after, other(apart ? last - right : last));
        forward(sums, apart ? 0 : at(first + k) * weights[first]);
        left = next;
        right = last;
    }
    right = at(end - one);
#pragma unroll UNROLL
    for (u32 t = 0; t < first; t++) {
        real weight = weights[t];
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(before[k] + after[k], weight, sums[k]);
        real next = at(t + N + one), last = at(end - 1 - t - one);
        forward(before, apart ? left - next : next);
        for (u32 k = N - 1; k > 0; k--) after[k] = after[k - 1];
        after[0] = other(apart ? right - last : last);
        left = next;
        right = last;
    }
    if (apart) {
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(at(first + k), weights[first], sums[k]);
    }
}

// An axis in global memory, of which element `base` is the first at hand, and the others are `stride` apart.
struct Axis {
    const void* x;
    u32 base;
    u32 stride;
    i32 n;
    i32 first;
    u32 edge;
    real constant;
};

template <u32 TYPE> DEVICE real at(const Axis& axis, i32 coordinate) {
    i32 place = source(axis.edge, coordinate, axis.n);
    return place < 0 ? axis.constant : load_real<TYPE, real>(axis.x, axis.base + (u32)(place - axis.first) * axis.stride);
}

// The sums of neighbours, of which the centre of the first is at a coordinate.
template <u32 TYPE, u32 N> DEVICE void sums_at(const Axis& axis, const real* weights, u32 count, u32 kind, i32 centre, real (&sums)[N]) {
    i32 start = centre - (i32)(count / 2);
    if (start >= 0 && start + (i32)(count + N - 1) <= axis.n) {
        u32 from = axis.base + (u32)(start - axis.first) * axis.stride;
        sum_taps<N, 4>(weights, count, kind, [&](u32 t) { return load_real<TYPE, real>(axis.x, from + t * axis.stride); }, sums);
    } else {
        sum_taps<N, 1>(weights, count, kind, [&](u32 t) { return at<TYPE>(axis, start + (i32)t); }, sums);
    }
}
