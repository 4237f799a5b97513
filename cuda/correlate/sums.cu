// Sums of taps along an axis. Sums that are not finite are computed again.

// Computes a sum again that is not finite, from elements divided by a power of two. Then it only overflows if the result does, or if weights
// add up to as much. If elements are infinite, their differences are NaN, and the elements themselves are summed. The numbers of EVEN are
// sums of weights on the left, the sum of all weights in the middle, and weights on the right.
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

// Computes the sums of N neighbours again that are not finite.
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

// Sums the taps of N neighbours; `at(k + t)` is tap t of neighbour k. A sum starts with the centre and adds taps from the outermost to the
// innermost, the two at the same distance together. Without symmetry, it starts with the last tap and adds from the first on. With APART,
// for EVEN, it adds differences of each tap and its neighbour towards the centre, and then the centre.
template <bool APART, u32 N, class At> DEVICE void sum_taps(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    constexpr int UNROLL = N == 1 ? 1 : 4;
    constexpr u32 ONE = APART ? 1 : 0;
    u32 end = count - 1;
    u32 first = kind == ANY ? end : count / 2;
    auto other = [&](real value) { return kind == ODD ? -value : kind == ANY ? 0 : value; };
    // The values of N neighbours are in registers, and move on by one at a time.
    real before[N], after[N];
    real left = at(0), right = at(end - ONE);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        real next = at(k + ONE), last = at(end + k);
        before[k] = APART ? left - next : next;
        after[k] = APART ? last - right : other(last);
        sums[k] = APART ? 0 : at(first + k) * weights[first];
        left = next;
        right = last;
    }
    right = at(end - ONE);
#pragma unroll UNROLL
    for (u32 t = 0; t < first; t++) {
        real weight = weights[t];
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(before[k] + after[k], weight, sums[k]);
        real next = at(t + N + ONE), last = at(end - 1 - t - ONE);
        for (u32 k = 0; k + 1 < N; k++) before[k] = before[k + 1];
        for (u32 k = N - 1; k > 0; k--) after[k] = after[k - 1];
        before[N - 1] = APART ? left - next : next;
        after[0] = APART ? right - last : other(last);
        left = next;
        right = last;
    }
    if constexpr (APART) {
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(at(first + k), weights[first], sums[k]);
    }
}

// Sums the taps of N neighbours of any kind. Sums that are not finite are computed again.
template <u32 N, class At> DEVICE void sums_of(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    if (kind == EVEN) sum_taps<true>(weights, count, kind, at, sums);
    else sum_taps<false>(weights, count, kind, at, sums);
    make_finite(weights, count, kind, at, sums);
}
