// Non-reference alleles of each call: out[i] = number of calls[i, ..] > 0, or the smallest allele where one is negative.
// Grid: linear, one invocation per four calls, which are one word of out.
// Bindings: 0 calls (len, ploidy) i8 read; 1 out (len) i8 write; 2 params { len, ploidy }.
// Constants: WG.

struct Params {
    len: u32,
    ploidy: u32,
}

@group(0) @binding(0) var<storage, read> calls: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

const WG: u32 = 256u;

fn count_call(call: u32) -> i32 {
    var lowest = 0;
    var count = 0;
    for (var i = call * params.ploidy; i < (call + 1u) * params.ploidy; i++) {
        let allele = bitcast<i32>(calls[i >> 2u] << (24u - (i & 3u) * 8u)) >> 24u;
        lowest = min(lowest, allele);
        count += select(0, 1, allele > 0);
    }
    return select(count, lowest, lowest < 0);
}

@compute @workgroup_size(WG)
fn dosage(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = linear_group(group, groups) * WG + lane;
    let first = 4u * place;
    if first >= params.len {
        return;
    }
    var word = 0u;
    for (var i = 0u; i < 4u && first + i < params.len; i++) {
        word |= (bitcast<u32>(count_call(first + i)) & 0xffu) << (8u * i);
    }
    out[place] = word;
}
