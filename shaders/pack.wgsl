// Bytes to values of BITS bits, the first in the lowest bits of a byte; each row begins with a byte, and is zero after its values.
// Grid: linear, one workgroup per WG words of the window of out.
// Bindings: 0 x (rows, cols) u8 or i8 read; 1 out (rows, stride) read, write; 2 refused [number, ~first place] read, write; 3 params.
// Constants: WG; BITS 1, 2 or 4; RECODE 1 if values go through the table.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> refused: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const BITS: u32 = 2u;
const RECODE: u32 = 0u;

const PER: u32 = 8u / BITS;
const MASK: u32 = (1u << BITS) - 1u;
// The lowest bit of every packed value.
const EACH: u32 = 0xffffffffu / MASK;
const REFUSE: u32 = 0xffffffffu;
const ONES: u32 = 0x01010101u;

// Returns up to four values from a place on, in the bytes of a word, followed by zeros.
fn load_values(place: u32, count: u32) -> u32 {
    let start = params.x0 + place;
    let shift = 8u * (start & 3u);
    var values = x[start >> 2u] >> shift;
    if (start & 3u) + count > 4u {
        values |= x[(start >> 2u) + 1u] << (32u - shift);
    }
    return values & (0xffffffffu >> (32u - 8u * count));
}

// Returns up to four values from a place on, checked, in the lowest bits of a word.
fn pack_values(place: u32, count: u32) -> u32 {
    let words = load_values(place, count);
    let negative = select((words >> 7u) & ONES, 0u, params.negative == REFUSE);
    let values = words & ~(negative * 255u);
    let over = (((values & 0x7f7f7f7fu) + (128u - params.entries) * ONES) | values) & 0x80808080u;
    if over != 0u {
        atomicAdd(&refused[params.refused0], countOneBits(over));
        atomicMax(&refused[params.refused0 + 1u], ~(place + firstTrailingBit(over) / 8u));
    }
    var packed = values | negative * params.negative;
    packed |= packed >> (8u - BITS);
    if BITS == 4u {
        packed &= 0x00ff00ffu;
    }
    packed |= packed >> (16u - 2u * BITS);
    return packed & ((1u << (4u * BITS)) - 1u);
}

// Returns the byte of up to PER values from a place on.
fn pack_byte(place: u32, count: u32) -> u32 {
    var byte = pack_values(place, min(count, 4u));
    if count > 4u {
        byte |= pack_values(place + 4u, count - 4u) << 4u;
    }
    return byte & 0xffu;
}

fn entry(i: u32) -> u32 {
    let half = select(params.table_low, params.table_high, i >= 8u);
    return ((half >> (4u * (i & 7u))) & MASK) * EACH;
}

// Replaces packed values by the table's entries: each bit of a value halves the number of candidates.
fn recode(packed: u32) -> u32 {
    var entries: array<u32, MASK + 1u>;
    for (var i = 0u; i <= MASK; i++) {
        entries[i] = entry(i);
    }
    var planes = packed;
    for (var left = (MASK + 1u) / 2u; left > 0u; left /= 2u) {
        let plane = (planes & EACH) * MASK;
        for (var i = 0u; i < left; i++) {
            entries[i] = (plane & entries[2u * i + 1u]) | (~plane & entries[2u * i]);
        }
        planes >>= 1u;
    }
    return entries[0];
}

@compute @workgroup_size(WG)
fn pack(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let end = params.out0 + params.rows * params.stride;
    let place = linear_group(group, groups) * WG + lane;
    let first = 4u * place;
    if place > (end - 1u) / 4u || first + 4u <= params.out0 {
        return;
    }
    let start = max(first, params.out0);
    var row = (start - params.out0) / params.stride;
    var column = (start - params.out0) % params.stride;
    var word = 0u;
    // The bits of the values, and of the bytes that are written.
    var used = 0u;
    var written = 0u;
    for (var i = start; i < min(first + 4u, end); i++) {
        let shift = 8u * (i - first);
        written |= 0xffu << shift;
        if column < (params.cols + PER - 1u) / PER {
            let count = min(PER, params.cols - column * PER);
            word |= pack_byte(row * params.cols + column * PER, count) << shift;
            used |= (0xffu >> (8u - BITS * count)) << shift;
        }
        column++;
        if column == params.stride {
            column = 0u;
            row++;
        }
    }
    if RECODE == 1u {
        word = recode(word);
    }
    word &= used;
    if written != 0xffffffffu {
        word |= out[place] & ~written;
    }
    out[place] = word;
}
