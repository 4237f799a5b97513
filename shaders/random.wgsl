// Philox4x32-10: word i of out is word i % 4 of the block with counter first + i / 4, under the seed as key; or an f32 or 16 codes made from such words.
// Grid: linear, one invocation per block of four words.
// Bindings: 0 out (n) u32 or f32 write; 1 params { n, seed, first block, each 64-bit number as low and high word; start; words, columns of a row of codes }.
// Constants: WG; KIND 0 words, 1 uniform f32, one from each word, 2 standard normal f32, two from two words, 3 codes, which are digits to the base 3.

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> params: Params;

const WG: u32 = 256u;
const KIND: u32 = 0u;

// Returns the high word of a 64-bit product, computed from products of 16-bit halves.
fn multiply_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let carry = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (carry >> 16u);
}

// Returns the upper 24 bits of each word as a fraction, exactly.
fn uniform_numbers(words: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(words >> vec4(8u)) * 0x1p-24f;
}

// Makes two standard normal numbers by the transform of Box and Muller. src/kernels/random.rs has the reasons and the errors. WGSL's own
// logarithm, sine and cosine may be wrong from the fourth digit on.
fn normal_pair(first: u32, second: u32) -> vec2<f32> {
    // u is (first + 1/2) / 2^32, or 1 - u if that is smaller.
    let least = min(first, ~first);
    let part = f32(2u * least + 1u) * 0x1p-33f;
    let mirrored = first != least;
    // u = 2^exponent (1 + rest), with 1 + rest from sqrt(1/2) to sqrt(2).
    let bits = bitcast<u32>(select(part, 1.0 - part, mirrored)) - 0x3f3504f3u;
    let exponent = bitcast<i32>(bits) >> 23u;
    let above = bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0;
    let rest = select(above, -part, mirrored && exponent == 0);
    // -2 ln(1 + rest) = rest (rest log_rest - 2).
    var log_rest = -0.17959288 * rest + 0.28854007;
    log_rest = log_rest * rest - 0.2976738;
    log_rest = log_rest * rest + 0.33103532;
    log_rest = log_rest * rest - 0.3992695;
    log_rest = log_rest * rest + 0.5000517;
    log_rest = log_rest * rest - 0.66667867;
    log_rest = log_rest * rest + 0.99999964;
    let radius = sqrt(f32(exponent) * -1.3862944 + rest * (rest * log_rest - 2.0));
    // `turned` gives the nearest quarter of a turn, and the remainder in eighths.
    let turned = second + 0x20000000u;
    let quarter = turned >> 30u;
    let x = f32(bitcast<i32>(turned & 0x3fffffffu) - 0x20000000) * 0x1p-29f;
    let z = x * x;
    let sine = x * (((-3.6116762e-5 * z + 0.0024903086) * z - 0.0807456) * z + 0.7853982);
    let cosine = (((3.531385e-6 * z - 0.00032594256) * z + 0.015854329) * z - 0.30842513) * z + 1.0;
    let odd = (quarter & 1u) == 1u;
    let turn = select(vec2(cosine, sine), vec2(sine, cosine), odd);
    let signs = vec2(((quarter + 1u) & 2u) << 30u, (quarter & 2u) << 30u);
    return bitcast<vec2<f32>>(bitcast<vec2<u32>>(radius * turn) ^ signs);
}

// Returns the first 16 digits after the point of each word / 2^32 to the base 3, two bits each.
fn codes(words: vec4<u32>) -> vec4<u32> {
    var rest = words;
    var digits = vec4(0u);
    for (var j = 0u; j < 16u; j++) {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        let one = select(vec4(0u), vec4(1u), rest >= vec4(0x55555556u));
        let two = select(vec4(0u), vec4(1u), rest >= vec4(0xaaaaaaabu));
        digits |= (one + two) << vec4(2u * j);
        rest *= 3u;
    }
    return digits;
}

// Returns the bits of the codes of a word that are columns of the row.
fn columns_of(word: u32) -> u32 {
    let count = params.columns - min(params.columns, 16u * word);
    return select((1u << (2u * count % 32u)) - 1u, 0xffffffffu, count >= 16u);
}

@compute @workgroup_size(WG)
fn random(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = linear_group(group, groups) * WG + lane;
    let first = 4u * block;
    if first >= params.n {
        return;
    }
    let low = params.block_low + block;
    var words = vec4(low, params.block_high + select(0u, 1u, low < block), 0u, 0u);
    var key = vec2(params.seed_low, params.seed_high);
    for (var round = 0u; round < 10u; round++) {
        let high0 = multiply_high(words.x, 0xd2511f53u);
        let high1 = multiply_high(words.z, 0xcd9e8d57u);
        words = vec4(
            high1 ^ words.y ^ key.x,
            words.z * 0xcd9e8d57u,
            high0 ^ words.w ^ key.y,
            words.x * 0xd2511f53u,
        );
        key += vec2(0x9e3779b9u, 0xbb67ae85u);
    }
    if KIND == UNIFORM {
        words = bitcast<vec4<u32>>(uniform_numbers(words));
    } else if KIND == NORMAL {
        words = bitcast<vec4<u32>>(vec4(normal_pair(words.x, words.y), normal_pair(words.z, words.w)));
    } else if KIND == CODES {
        let word = first % params.words;
        words = codes(words) & vec4(columns_of(word), columns_of(word + 1u), columns_of(word + 2u), columns_of(word + 3u));
    }
    for (var i = 0u; i < 4u && first + i < params.n; i++) {
        out[params.out0 + first + i] = words[i];
    }
}
