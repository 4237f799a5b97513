// Sums along z, y and x of one tile after another, by way of shared memory; then the kernel.

// These stand for the place of an element in a plane: it is beyond an edge of y, or no sum that becomes an output sees it.
constexpr u32 BEYOND = 0xfffffffe;
constexpr u32 UNSEEN = 0xffffffff;

// A plane of a tile: its first output, and what its sums along y see.
struct Tile {
    u32 array;
    u32 first_y;
    u32 first_x;
    u32 size_x;
    u32 reach_y;
    u32 reach_x;
    u32 width;
    u32 seen;
};

// The place in its plane, or without sums across z in its array, of an element that sums along y see.
DEVICE u32 place_of(const Params& p, const Tile& tile, u32 row, u32 column) {
    if (row >= min(TILE_Y, p.my - tile.first_y) + tile.reach_y) return UNSEEN;
    u32 element = tile.first_x + column;
    u32 place = element / p.step;
    i32 at_y = source(edge_of(p, 1), (i32)(tile.first_y + row + p.oy) - (i32)(tile.reach_y / 2), (i32)p.ny);
    i32 at_x = source(edge_of(p, 2), (i32)(place + p.ox) - (i32)(tile.reach_x / 2), (i32)p.nx);
    if (at_x < 0) return UNSEEN;
    if (at_y < 0) return BEYOND;
    u32 first = p.wz == 0 ? p.first : 0;
    return (((u32)at_y - first) * p.nx + (u32)at_x) * p.step + (element - place * p.step);
}

// The value of a cell of which the element, or the sum across z, is `value`.
DEVICE real cell(const real* numbers, u32 place, real value) { return place == UNSEEN ? 0 : place == BEYOND ? numbers[1] : value; }

// Does `act(i, place)` for each cell of this thread. The loop is not unrolled: compilers make hundreds of copies of place_of.
template <class Act> DEVICE void for_each_cell(const Params& p, const Tile& tile, Act act) {
    u32 row = threadIdx.x / tile.width;
    u32 column = threadIdx.x - row * tile.width;
    u32 rows = WG / tile.width;
    u32 columns = WG - rows * tile.width;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < tile.seen; i += WG) {
        act(i, place_of(p, tile, row, column));
        row += rows;
        column += columns;
        if (column >= tile.width) {
            row++;
            column -= tile.width;
        }
    }
}

// True where every cell has an element: those of whole tiles away from the edges.
DEVICE bool is_interior(const Params& p, const Tile& tile) {
    i32 first_y = (i32)(tile.first_y + p.oy) - (i32)(tile.reach_y / 2);
    i32 first_x = (i32)(tile.first_x / p.step + p.ox) - (i32)(tile.reach_x / 2);
    i32 rows = (i32)(TILE_Y + tile.reach_y), columns = (i32)(div_ceil(tile.first_x + tile.width, p.step) - tile.first_x / p.step);
    bool is_whole = tile.first_y + TILE_Y <= p.my && first_y >= 0 && first_y + rows <= (i32)p.ny;
    return is_whole && first_x >= 0 && first_x + columns <= (i32)p.nx;
}

// Cells of an interior tile, of which the first has element `first`, and rows are `line` apart: some are loaded before the first is stored.
template <u32 TYPE> DEVICE void fill_interior(const Tile& tile, const void* x, u32 first, u32 line, real* cells) {
    u32 row = threadIdx.x / tile.width;
    u32 column = threadIdx.x - row * tile.width;
    u32 rows = WG / tile.width;
    u32 columns = WG - rows * tile.width;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < tile.seen; i += CELLS * WG) {
        real values[CELLS];
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            if (i + c * WG < tile.seen) values[c] = load_real<TYPE, real>(x, first + row * line + column);
            row += rows;
            column += columns;
            if (column >= tile.width) {
                row++;
                column -= tile.width;
            }
        }
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            if (i + c * WG < tile.seen) cells[i + c * WG] = values[c];
        }
    }
}

// Cells without sums across z.
DEVICE void fill_plain(const Params& p, const Tile& tile, const void* x, const real* numbers, real* cells) {
    u32 line = p.nx * p.step;
    u32 base = p.x0 + tile.array * p.count * line;
    if (is_interior(p, tile)) {
        u32 first = base + (tile.first_y + p.oy - tile.reach_y / 2 - p.first) * line + tile.first_x + (p.ox - tile.reach_x / 2) * p.step;
        BY_TYPE(p.x_type, TYPE, fill_interior<TYPE>(tile, x, first, line, cells));
        return;
    }
    for_each_cell(p, tile, [&](u32 i, u32 place) {
        real value = 0;
        if (place < BEYOND) BY_TYPE(p.x_type, TYPE, value = (load_real<TYPE, real>(x, base + place)));
        cells[i] = cell(numbers, place, value);
    });
}

// A thread's cells, of which it holds the planes from REACH before to REACH behind that of its sums.
struct Ring {
    u32 places[CELLS];
    real planes[CELLS][2 * REACH + 1];
};

template <u32 TYPE> DEVICE void load_cells(const void* x, u32 base, const u32 (&places)[CELLS], real (&values)[CELLS]) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
        if (places[c] < BEYOND) values[c] = load_real<TYPE, real>(x, base + places[c]);
    }
}

// Goes on by a plane: the last is then that at a coordinate of the output, if some sum up to the plane `end` sees it.
DEVICE void advance(const Params& p, const Tile& tile, const void* x, const real* numbers, Ring& ring, i32 z, u32 end) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
#pragma unroll
        for (u32 d = 0; d < 2 * REACH; d++) ring.planes[c][d] = ring.planes[c][d + 1];
    }
    if (z >= (i32)(end + p.wz / 2)) return;
    i32 at_z = source(edge_of(p, 0), z + (i32)p.oz, (i32)p.nz);
    u32 base = p.x0 + (tile.array * p.count + (u32)at_z - p.first) * p.ny * p.nx * p.step;
    real values[CELLS];
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) values[c] = numbers[0];
    if (at_z >= 0) {
        BY_TYPE(p.x_type, TYPE, load_cells<TYPE>(x, base, ring.places, values));
    }
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) ring.planes[c][2 * REACH] = values[c];
}

// The sum across z of a cell, in the order of sum_taps. Indices are constants, so that the planes stay in registers.
DEVICE real sum_across(const real (&planes)[2 * REACH + 1], const real* weights, u32 radius, u32 kind) {
    real sum = 0;
    if (kind == ANY) {
#pragma unroll
        for (u32 d = 0; d <= REACH; d++) {
            if (d == radius) sum = planes[REACH + d] * weights[2 * radius];
        }
#pragma unroll
        for (u32 d = 0; d < 2 * REACH; d++) {
            if (d + radius >= REACH && d < REACH + radius) sum = multiply_add(planes[d], weights[d + radius - REACH], sum);
        }
    } else if (kind != EVEN) {
        sum = planes[REACH] * weights[radius];
    }
#pragma unroll
    for (u32 d = REACH; d > 0; d--) {
        if (d > radius || kind == ANY) continue;
        real before = planes[REACH - d], after = planes[REACH + d];
        if (kind == EVEN) {
            before -= planes[REACH - d + 1];
            after -= planes[REACH + d - 1];
        }
        sum = multiply_add(kind == ODD ? before - after : before + after, weights[radius - d], sum);
    }
    if (kind == EVEN) sum = multiply_add(planes[REACH], weights[radius], sum);
    if (is_finite(sum)) return sum;
    return sum_again(weights, 2 * radius + 1, kind, [&](u32 t) {
        real value = 0;
#pragma unroll
        for (u32 d = 0; d <= 2 * REACH; d++) value = d + radius == t + REACH ? planes[d] : value;
        return value;
    });
}

DEVICE void fill_across(const Params& p, const Tile& tile, const Whole& whole, const real* numbers, const Ring& ring, real* cells) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
        u32 i = threadIdx.x + c * WG;
        real value = truncated(whole, sum_across(ring.planes[c], numbers + 3, p.wz / 2, kind_of(p, 0)));
        if (i < tile.seen) cells[i] = cell(numbers, ring.places[c], value);
    }
}

// The sums of neighbours in shared memory, whose taps are `stride` apart.
DEVICE void sums_in_cells(const real* weights, u32 count, u32 kind, const real* taps, u32 stride, real (&sums)[MANY]) {
    auto tap = [&](u32 t) { return taps[t * stride]; };
    sum_taps<MANY, 4>(weights, count, kind, tap, sums);
    make_finite(weights, count, kind, tap, sums);
}

// Sums along y, by columns.
DEVICE void sum_columns(const Params& p, const Tile& tile, const Whole& whole, const real* numbers, const real* cells, real* columns) {
#pragma unroll 1
    for (u32 q = threadIdx.x; q < TILE_Y / MANY * tile.width; q += WG) {
        u32 group = q / tile.width;
        u32 column = q - group * tile.width;
        const real* taps = cells + group * MANY * tile.width + column;
        real sums[MANY];
        for (u32 k = 0; k < MANY; k++) sums[k] = taps[k * tile.width];
        if (p.wy > 0) sums_in_cells(numbers + 3 + p.wz, p.wy, kind_of(p, 1), taps, tile.width, sums);
        i32 place = (i32)((tile.first_x + column) / p.step + p.ox) - (i32)(tile.reach_x / 2);
        bool is_beyond = p.wx > 0 && source(edge_of(p, 2), place, (i32)p.nx) < 0;
        for (u32 k = 0; k < MANY; k++) {
            real value = p.wy > 0 ? truncated(whole, sums[k]) : sums[k];
            columns[column * COLUMN + group * MANY + k] = is_beyond ? numbers[2] : value;
        }
    }
}

// Sums along x, by rows. The halves of a warp are half a tile apart: a column of 17 numbers for each of 16 elements.
DEVICE void sum_rows(const Params& p, const Tile& tile, const real* numbers, const real* columns, real* rows) {
    u32 groups = tile.size_x / MANY;
#pragma unroll 1
    for (u32 q = threadIdx.x; q < TILE_Y * groups; q += WG) {
        u32 row = q % TILE_Y;
        u32 nth = q / TILE_Y;
        u32 group = nth % 2 * div_ceil(groups, 2) + nth / 2;
        u32 block = group / p.step;
        u32 element = block * MANY * p.step + (group - block * p.step);
        const real* taps = columns + element * COLUMN + row;
        u32 stride = p.step * COLUMN;
        real sums[MANY];
        for (u32 k = 0; k < MANY; k++) sums[k] = taps[k * stride];
        if (p.wx > 0) sums_in_cells(numbers + 3 + p.wz + p.wy, p.wx, kind_of(p, 2), taps, stride, sums);
        for (u32 k = 0; k < MANY; k++) rows[row * ROW + element + k * p.step] = sums[k];
    }
}

DEVICE void make_tile(const Params& p, const void* x, const real* numbers, void* out, real* cells) {
    Whole whole = whole_of(p);
    Tile tile;
    u32 line = p.mx * p.step;
    tile.size_x = TILE_X / (MANY * p.step) * (MANY * p.step);
    u32 across = div_ceil(line, tile.size_x);
    u32 down = div_ceil(p.my, TILE_Y);
    u32 runs = div_ceil(p.mz, p.run);
    u32 tile_row = linear_block() / across;
    u32 nth = tile_row / down;
    tile.array = nth / runs;
    if (tile.array >= p.outer) return;
    tile.first_x = (linear_block() - tile_row * across) * tile.size_x;
    tile.first_y = (tile_row - nth * down) * TILE_Y;
    tile.reach_y = max(p.wy, 1u) - 1;
    tile.reach_x = max(p.wx, 1u) - 1;
    tile.width = tile.size_x + tile.reach_x * p.step;
    tile.seen = (TILE_Y + tile.reach_y) * tile.width;
    u32 first = (nth - tile.array * runs) * p.run;
    u32 end = min(p.mz, first + p.run);
    Ring ring;
    if (p.wz > 0) {
        // By way of the shared memory, so that places stand in registers that are known.
        u32* places = (u32*)cells;
        for_each_cell(p, tile, [&](u32 i, u32 place) { places[i] = place; });
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            u32 i = threadIdx.x + c * WG;
            ring.places[c] = i < tile.seen ? places[i] : UNSEEN;
#pragma unroll
            for (u32 d = 0; d <= 2 * REACH; d++) ring.planes[c][d] = 0;
        }
        // Other threads' cells stand where this one's places did.
        __syncthreads();
        i32 last = (i32)(first + REACH);
#pragma unroll 1
        for (i32 z = (i32)first - (i32)(p.wz / 2); z <= last; z++) advance(p, tile, x, numbers, ring, z, end);
    }
    real* columns = cells + tile.seen;
    real* rows = columns + tile.width * COLUMN;
#pragma unroll 1
    for (u32 z = first; z < end; z++) {
        if (p.wz > 0) fill_across(p, tile, whole, numbers, ring, cells);
        else fill_plain(p, tile, x, numbers, cells);
        __syncthreads();
        if (p.wz > 0) advance(p, tile, x, numbers, ring, (i32)(z + 1 + REACH), end);
        sum_columns(p, tile, whole, numbers, cells, columns);
        __syncthreads();
        sum_rows(p, tile, numbers, columns, rows);
        __syncthreads();
#pragma unroll 1
        for (u32 i = threadIdx.x; i < TILE_Y * TILE_X; i += WG) {
            u32 row = i / TILE_X;
            u32 element = i % TILE_X;
            if (element >= tile.size_x || tile.first_y + row >= p.my || tile.first_x + element >= line) continue;
            u32 place = ((tile.array * p.mz + z) * p.my + tile.first_y + row) * line + tile.first_x + element;
            real value = combined(p, out, p.out0 + place, truncated(whole, rows[row * ROW + element]));
            BY_TYPE(p.out_type, TYPE, store_real<TYPE>(out, p.out0 + place, value));
        }
    }
}

KERNEL(correlate, WG, BLOCKS)(const void* __restrict__ x, const real* __restrict__ numbers, void* __restrict__ out, Params params) {
    SHARED(real, cells, TILED == 1 ? ROOM : 1);
    if constexpr (TILED == 1) make_tile(params, x, numbers, out, cells);
    else make_lines(params, x, numbers, out);
}
EXPORT(correlate)
