// Sums along y, along x, or along y and then x, through shared memory. The kernel is last.

// A strip of an array: `width` elements of the rows `first` to `end` of the output. A thread has one column, and every few rows of it.
struct Strip {
    u32 array;
    u32 first_x;
    u32 width;
    u32 first;
    u32 end;
    // The number of elements of a row of the output, and of a row of the available input; and the index of the first available element.
    u32 out_line;
    u32 line;
    u32 base;
    // The number of rows that the sums along y of `rows` rows need.
    u32 ring;
    // A thread computes MANY neighbours along y in this column, from this row on, and MANY more every `next_row` rows.
    u32 column;
    u32 row;
    u32 next_row;
    // A thread computes MANY neighbours along x in this row, from this element on.
    u32 row_across;
    u32 element;
};

// Returns i, or i - n if i is at least n. i is below 2 n.
DEVICE u32 around(u32 i, u32 n) { return min(i, i - n); }

DEVICE Strip strip_at(const Params& p, u32 block) {
    Strip strip;
    strip.out_line = p.mx * p.step;
    strip.width = p.columns - (ACROSS == 1 ? (p.wx - 1) * p.step : 0);
    u32 strips = div_ceil(strip.out_line, strip.width);
    u32 runs = div_ceil(p.my, p.run);
    u32 part = block / strips;
    strip.array = part / runs;
    strip.first_x = (block - part * strips) * strip.width;
    strip.first = (part - strip.array * runs) * p.run;
    strip.end = min(p.my, strip.first + p.run);
    strip.line = (ALONG == 1 ? p.nx : p.count) * p.step;
    strip.base = p.x0 + strip.array * (ALONG == 1 ? p.count : p.ny) * strip.line;
    strip.ring = (ALONG == 1 ? p.wy - 1 : 0) + p.rows;
    u32 group = threadIdx.x / p.columns;
    u32 groups = max(WG / p.columns, 1u);
    strip.column = threadIdx.x - group * p.columns;
    // Threads beyond the last whole group have no rows.
    strip.row = group < groups ? MANY * group : p.rows;
    strip.next_row = MANY * groups;
    u32 nth = threadIdx.x / p.rows;
    strip.row_across = threadIdx.x - nth * p.rows;
    strip.element = nth / p.step * (MANY - 1) * p.step + nth;
    return strip;
}

// Markers in place of an element's place in its row: BEYOND an edge of x, or UNSEEN by any output.
constexpr u32 BEYOND = 0xfffffffe;
constexpr u32 UNSEEN = 0xffffffff;

DEVICE u32 place_in_row(const Params& p, const Strip& strip, u32 column) {
    u32 reach = ACROSS == 1 ? p.wx - 1 : 0;
    if (column >= min(strip.width, strip.out_line - strip.first_x) + reach * p.step) return UNSEEN;
    u32 element = strip.first_x + column;
    u32 place = element / p.step;
    i32 at = source(edge_of(p, 2), (i32)(place + p.ox) - (i32)(reach / 2), (i32)p.nx);
    if (at < 0) return BEYOND;
    return ((u32)at - (ALONG == 1 ? 0 : p.first)) * p.step + (element - place * p.step);
}

// Loads MANY cells of a column to `slot` and the slots behind it, from row `row` of those that the strip needs on. Skips rows before row 0,
// and fills up with zeros after `count`.
template <u32 TYPE>
DEVICE void load_cells(const Params& p, const Strip& strip, const void* x, real beyond, u32 place, i32 row, u32 count, real* cells, u32 slot) {
    i32 at = (i32)(strip.first + p.oy) - (i32)(p.wy / 2) + row;
    u32 base = strip.base + place - (ALONG == 1 ? p.first : 0) * strip.line;
    u32 stride = ALONG == 1 ? p.columns : 1;
    auto cell = [&](u32 k) -> real& { return cells[around(slot + k, strip.ring) * stride]; };
    if (row >= 0 && count >= MANY && at >= 0 && at + (i32)MANY <= (i32)p.ny) {
        real values[MANY];
#pragma unroll
        for (u32 k = 0; k < MANY; k++) values[k] = load_real<TYPE, real>(x, base + ((u32)at + k) * strip.line);
#pragma unroll
        for (u32 k = 0; k < MANY; k++) cell(k) = values[k];
        return;
    }
#pragma unroll 1
    for (u32 k = row < 0 ? (u32)-row : 0; k < (ALONG == 1 ? MANY : min(count, MANY)); k++) {
        i32 row_at = source(edge_of(p, 1), at + (i32)k, (i32)p.ny);
        real value = row_at < 0 ? beyond : 0;
        if (row_at >= 0 && k < count) value = load_real<TYPE, real>(x, base + (u32)row_at * strip.line);
        cell(k) = value;
    }
}

// Loads `count` rows, from row `row` of those that the strip needs on, to `slot` and those behind it. `place` is this thread's column's.
DEVICE void load_rows(const Params& p, const Strip& strip, const void* x, const real* numbers, u32 place, i32 row, u32 count, real* cells, u32 slot) {
#pragma unroll 1
    for (u32 column = strip.column; column < p.columns; column += WG) {
        if (p.columns > WG) place = place_in_row(p, strip, column);
        real* to = cells + (ALONG == 1 ? column : column * p.apart);
#pragma unroll 1
        for (u32 k = strip.row; k < count; k += strip.next_row) {
            if (place < BEYOND) {
                BY_TYPE(p.x_type, TYPE, load_cells<TYPE>(p, strip, x, numbers[1], place, row + (i32)k, count - k, to, around(slot + k, strip.ring)));
            } else if (ALONG == 0) {
                for (u32 i = k; i < min(k + MANY, count); i++) to[i] = place == BEYOND ? numbers[2] : 0;
            }
        }
    }
}

// Sums along x over cells that are stored column by column. The sums overwrite the cells.
DEVICE void sum_across(const Params& p, const Strip& strip, const real* numbers, u32 count, real* columns) {
    bool is_busy = strip.element < strip.width && strip.row_across < count;
    real* own = columns + strip.element * p.apart + strip.row_across;
    u32 next = p.step * p.apart;
    real sums[MANY];
    if (is_busy) sums_of(numbers + 3 + p.wy, p.wx, kind_of(p, 2), [&](u32 t) { return own[t * next]; }, sums);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < MANY; k++) {
        if (is_busy) own[k * next] = sums[k];
    }
    __syncthreads();
}

// Stores the sums of a column from row `y` of the output on, at most `count` of MANY.
DEVICE void store_sums(const Params& p, const Strip& strip, const Whole& whole, void* out, const real (&sums)[MANY], u32 column, u32 y, u32 count) {
    u32 first = p.out0 + (strip.array * p.my + y) * strip.out_line + strip.first_x + column;
    real values[MANY];
#pragma unroll
    for (u32 k = 0; k < MANY; k++) values[k] = k < count ? combined(p, out, first + k * strip.out_line, truncated(whole, sums[k])) : 0;
    BY_TYPE(p.out_type, TYPE, for (u32 k = 0; k < MANY; k++) {
        if (k < count) store_real<TYPE>(out, first + k * strip.out_line, values[k]);
    });
}

// Computes a strip, `rows` rows at a time. Blocks of rows before its first are only loaded, since its sums need some of these rows.
DEVICE void make_strip(const Params& p, const Strip& strip, const void* x, const real* numbers, void* out, real* cells) {
    Whole whole = whole_of(p);
    u32 reach = strip.ring - p.rows;
    u32 before = div_ceil(reach, p.rows) * p.rows;
    u32 width = min(strip.width, strip.out_line - strip.first_x);
    // Cells are stored row by row for sums along y. These sums, or cells without them, are stored column by column for sums along x.
    real* columns = cells + (ALONG == 1 ? strip.ring * p.columns : 0);
    u32 place = place_in_row(p, strip, strip.column);
    // The slot of the next rows in the ring.
    u32 slot = 0;
#pragma unroll 1
    for (u32 seen = 0; seen < before + strip.end - strip.first; seen += p.rows) {
        u32 y = strip.first + seen - before;
        u32 count = seen < before ? p.rows : min(p.rows, strip.end - y);
        load_rows(p, strip, x, numbers, place, (i32)(reach - before + seen), count, cells, slot);
        slot = around(slot + p.rows, strip.ring);
        __syncthreads();
        if (seen < before) continue;
        real sums[MANY] = {};
        if constexpr (ALONG == 1) {
            if (strip.row < count && place < BEYOND) {
                u32 start = around(slot + strip.row, strip.ring);
                auto tap = [&](u32 t) { return cells[around(start + t, strip.ring) * p.columns + strip.column]; };
                sums_of(numbers + 3, p.wy, kind_of(p, 1), tap, sums);
            }
            if constexpr (ACROSS == 1) {
#pragma unroll
                for (u32 k = 0; k < MANY; k++) {
                    real sum = place == BEYOND ? numbers[2] : truncated(whole, sums[k]);
                    if (strip.row < count) columns[strip.column * p.apart + strip.row + k] = sum;
                }
                __syncthreads();
            }
        }
        if constexpr (ACROSS == 1) sum_across(p, strip, numbers, count, columns);
#pragma unroll 1
        for (u32 column = strip.column; column < width; column += WG) {
#pragma unroll 1
            for (u32 row = strip.row; row < count; row += strip.next_row) {
#pragma unroll
                for (u32 k = 0; k < MANY; k++) {
                    if (ACROSS == 1 && row + k < count) sums[k] = columns[column * p.apart + row + k];
                }
                store_sums(p, strip, whole, out, sums, column, y + row, count - row);
            }
        }
        // The next rows overwrite cells that were read before the sums along x, by the same thread, or before this barrier.
        if constexpr (ACROSS == 0) __syncthreads();
    }
}

KERNEL(correlate, WG, BLOCKS)(const void* __restrict__ x, const real* __restrict__ numbers, void* __restrict__ out, Params params) {
    SHARED(real, cells, ALONG + ACROSS > 0 ? ROOM : 1);
    if constexpr (ALONG + ACROSS > 0) {
        Strip strip = strip_at(params, linear_block());
        if (strip.array < params.outer) make_strip(params, strip, x, numbers, out, cells);
    } else {
        make_directly(params, x, numbers, out);
    }
}
EXPORT(correlate)
