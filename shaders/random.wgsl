// Philox4x32-10 words: word i of out is word i % 4 of the block with counter first + i / 4, under the seed as key.
// Grid: linear, one invocation per block of four words.
// Bindings: 0 out (n) u32 write; 1 params { n, seed, first block, each 64-bit number as low and high word }.
// Constants: WG.

struct Params {
    n: u32,
    seed_low: u32,
    seed_high: u32,
    block_low: u32,
    block_high: u32,
}

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> params: Params;

const WG: u32 = 256u;

// The high word of a 64-bit product, from products of 16-bit halves.
fn multiply_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let carry = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (carry >> 16u);
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
    for (var i = 0u; i < 4u && first + i < params.n; i++) {
        out[first + i] = words[i];
    }
}
