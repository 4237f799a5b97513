//! Tests of damaged and hostile chunks: each is an error that names the array and the chunk; none panics or aborts.

use std::borrow::Cow;

use super::{
    super::{guard::Fault, metadata::Metadata, shard::slice},
    *,
};
use crate::{WholeShard, openings::patched};

const SHAPE: [u64; 3] = [32, 64, 2];
const BYTES: usize = 32 * 64 * 2;

fn plain() -> Vec<u8> {
    compressible(&mut Numbers(11), BYTES)
}

/// Writes an array of two chunks with a v2 compressor, in which the second chunk is `chunk`.
fn v2_store(compressor: &Value, chunk: Vec<u8>) -> Scratch {
    Scratch::of(&v2(&[64, 64, 2], &SHAPE, "|i1", compressor.clone()), &[("1.0.0", chunk)])
}

/// Writes the array of [`v2_store`] with v3 codecs that follow `bytes`.
fn v3_store(codecs: &[Value], chunk: Vec<u8>) -> Scratch {
    let chain = [&[json!({ "name": "bytes" })], codecs].concat();
    Scratch::of(&v3(&[64, 64, 2], &SHAPE, "int8", chain.into()), &[("c/1/0/0", chunk)])
}

/// Returns the error of reading the chunk at `index`, and checks that it names the array and the chunk.
fn named(read: crate::Result<DecodedChunk>, index: &[u64], case: &str) -> String {
    match read {
        Err(Error::Chunk { array, index: at, why, .. }) => {
            assert!(Path::new(&*array).ends_with("a") && *at == *index, "{case}: {array} {at:?}");
            why.into()
        }
        other => panic!("{case}: {:?}", other.map(|chunk| chunk.bytes.len())),
    }
}

fn refused(scratch: &Scratch, case: &str) -> String {
    named(scratch.strict().read_chunk(&[1, 0, 0]), &[1, 0, 0], case)
}

fn gzip_codec() -> Value {
    json!({ "name": "gzip", "configuration": { "level": 3 } })
}

fn zlib_codec() -> Value {
    json!({ "name": "numcodecs.zlib", "configuration": { "level": 3 } })
}

/// Returns a zstd frame of 16 bytes that claims `size` bytes.
fn zstd_claim(size: u64) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    frame.extend(size.to_le_bytes());
    frame.extend([1, 0, 0]);
    frame
}

#[test]
fn uncompressed() {
    for (case, chunk) in [
        ("empty", vec![]),
        ("short", vec![0; BYTES - 1]),
        ("long", vec![0; BYTES + 1]),
        ("far too long", vec![0; 2 * BYTES + (64 << 10) + 1]),
    ] {
        refused(&v2_store(&Value::Null, chunk), case);
    }
}

#[test]
fn oversized_files_are_not_read() {
    for compressor in [Value::Null, blosc_meta()] {
        let scratch = v2_store(&compressor, vec![]);
        let file = fs::File::options().write(true).open(scratch.path().join("a/1.0.0")).unwrap();
        // The file is sparse, so it takes no space on disk.
        file.set_len(1 << 40).unwrap();
        assert!(refused(&scratch, "1 TiB").contains("its file has 1099511627776 bytes, expected at most"));
    }
}

#[test]
fn not_a_file() {
    let scratch = v2_store(&blosc_meta(), vec![]);
    fs::remove_file(scratch.path().join("a/1.0.0")).unwrap();
    assert!(refused(&scratch, "missing").contains("missing"));
    fs::create_dir(scratch.path().join("a/1.0.0")).unwrap();
    refused(&scratch, "directory");
    #[cfg(unix)]
    {
        fs::remove_dir(scratch.path().join("a/1.0.0")).unwrap();
        std::os::unix::fs::symlink("1.0.0", scratch.path().join("a/1.0.0")).unwrap();
        refused(&scratch, "symlink loop");
        fs::remove_file(scratch.path().join("a/1.0.0")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", scratch.path().join("a/1.0.0")).unwrap();
        refused(&scratch, "endless device");
    }
}

#[test]
fn blosc_headers() {
    let good = blosc(&plain());
    let first = u32::from_le_bytes(good[16..20].try_into().unwrap()) as usize;
    let length = u32::try_from(good.len()).unwrap().to_le_bytes();
    let max = i32::MAX.to_le_bytes();
    let bytes = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let cases = [
        ("empty", vec![]),
        ("zeros", vec![0; 64]),
        ("version", patched(&good, 0, &[3])),
        ("reserved flag", patched(&good, 2, &[good[2] | 8])),
        ("another codec", patched(&good, 2, &[good[2] & 0x1f | 0x20])),
        ("no such codec", patched(&good, 2, &[good[2] | 0xe0])),
        ("stored, but is not", patched(&good, 2, &[good[2] | 2])),
        ("typesize 0", patched(&good, 3, &[0])),
        ("claims 1 byte", patched(&good, 4, &bytes(1))),
        ("claims less", patched(&good, 4, &bytes(BYTES - 1))),
        ("claims more", patched(&good, 4, &bytes(BYTES + 1))),
        ("claims 0", patched(&good, 4, &[0; 4])),
        ("claims 2 GiB", patched(&good, 4, &max)),
        ("claims -1", patched(&good, 4, &[255; 4])),
        ("blocks of 0", patched(&good, 8, &[0; 4])),
        ("blocks of 1", patched(&good, 8, &bytes(1))),
        ("blocks of 3", patched(&good, 8, &bytes(3))),
        ("blocks of 2 GiB", patched(&good, 8, &max)),
        ("blocks of -1", patched(&good, 8, &[255; 4])),
        ("encoded size 0", patched(&good, 12, &[0; 4])),
        ("encoded size off by one", patched(&good, 12, &bytes(good.len() + 1))),
        ("encoded size 2 GiB", patched(&good, 12, &max)),
        ("block at 0", patched(&good, 16, &[0; 4])),
        ("block at the end", patched(&good, 16, &length)),
        ("block near the end", patched(&good, 16, &bytes(good.len() - 4))),
        ("block at 2 GiB", patched(&good, 16, &max)),
        ("block at -1", patched(&good, 16, &[255; 4])),
        ("stream of 2 GiB", patched(&good, first, &max)),
        ("stream of -1", patched(&good, first, &[255; 4])),
        ("stream of 0", patched(&good, first, &[0; 4])),
        ("trailing garbage", [good.clone(), vec![7; 5]].concat()),
    ];
    for (case, chunk) in cases {
        refused(&v2_store(&blosc_meta(), chunk), case);
    }
    // The chunk claims the size that it has, but the metadata say another.
    for n in [BYTES / 2, BYTES * 2, 1 << 27] {
        let why = refused(&v2_store(&blosc_meta(), blosc(&vec![0; n])), "another size");
        assert!(why.contains(&format!("expected {BYTES}")), "{why}");
    }
}

#[test]
fn truncated_anywhere() {
    let plain = plain();
    let with = |id: &str| json!({ "id": id, "level": 3 });
    let cases = [
        (blosc_meta(), blosc(&plain)),
        (with("zstd"), zstd(&plain)),
        (with("zstd"), zstd_stream(&plain)),
        (with("gzip"), gzip(&plain)),
        (with("zlib"), zlib(&plain)),
    ];
    for (meta, good) in cases {
        let array = v2_store(&meta, good.clone());
        let array = array.open("a").unwrap();
        let (codecs, spec) = (&array.metadata.codecs, &array.metadata.spec);
        assert!(codecs.decode(Cow::Borrowed(&good), spec, false).unwrap().0 == plain);
        for end in 0..good.len() {
            let cut = codecs.decode(Cow::Borrowed(&good[..end]), spec, false);
            assert!(cut.is_err(), "{meta} cut at {end} of {}", good.len());
        }
    }
}

#[test]
fn claims_and_bombs() {
    let bomb = vec![0; 64 << 20];
    let (zstd_meta, gzip_meta, zlib_meta) = ([zstd_codec()], [gzip_codec()], [zlib_codec()]);
    let with_crc = [zstd_meta[0].clone(), json!("crc32c")];
    // The outer of two compressors has no exact size to check, only a maximum.
    let twice = [gzip_meta[0].clone(), zstd_meta[0].clone()];
    let good = plain();
    let cases: Vec<(&str, &[Value], Vec<u8>)> = vec![
        ("zstd, 2^50", &zstd_meta, zstd_claim(1 << 50)),
        ("zstd, 2^63 - 1", &zstd_meta, zstd_claim(i64::MAX.unsigned_abs())),
        ("zstd, 2^64 - 3", &zstd_meta, zstd_claim(u64::MAX - 2)),
        ("zstd, right claim without data", &zstd_meta, zstd_claim(BYTES as u64)),
        ("zstd, nothing but a skippable frame", &zstd_meta, vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9]),
        ("zstd bomb", &zstd_meta, zstd(&bomb)),
        ("zstd bomb without a size", &zstd_meta, zstd_stream(&bomb)),
        ("zstd, a second frame", &zstd_meta, [zstd(&good), zstd(&good)].concat()),
        ("zstd, garbage behind", &zstd_meta, [zstd(&good), vec![1, 2, 3]].concat()),
        ("zstd short", &zstd_meta, zstd(&good[1..])),
        ("zstd of nothing", &zstd_meta, zstd(&[])),
        ("gzip bomb", &gzip_meta, gzip(&bomb)),
        ("gzip, a second member", &gzip_meta, [gzip(&good), gzip(&good)].concat()),
        ("gzip, garbage behind", &gzip_meta, [gzip(&good), vec![1, 2, 3]].concat()),
        ("gzip short", &gzip_meta, gzip(&good[1..])),
        ("gzip, another checksum", &gzip_meta, {
            let bytes = gzip(&good);
            let at = bytes.len() - 8;
            patched(&bytes, at, &[bytes[at] ^ 1])
        }),
        ("zlib bomb", &zlib_meta, zlib(&bomb)),
        ("zlib, garbage behind", &zlib_meta, [zlib(&good), vec![1, 2, 3]].concat()),
        ("zlib short", &zlib_meta, zlib(&good[1..])),
        ("crc over a bomb", &with_crc, crc(zstd(&bomb))),
        ("crc over a claim", &with_crc, crc(zstd_claim(1 << 50))),
        ("wrong crc", &with_crc, [zstd(&good), vec![0; 4]].concat()),
        ("shorter than a crc", &with_crc, vec![1, 2, 3]),
        ("bomb of gzip", &twice, zstd_stream(&bomb)),
        ("claim about gzip", &twice, zstd_claim(1 << 50)),
        ("gzip bomb within zstd", &twice, zstd(&gzip(&bomb))),
    ];
    for (case, codecs, chunk) in cases {
        refused(&v3_store(codecs, chunk), case);
    }
}

/// Returns the error of reading the chunk at [0, 2], which is of shard [0, 1]: the same from a range and from the whole shard.
fn of_shard(scratch: &Scratch, case: &str) -> String {
    let array = scratch.strict();
    let fetched = array.fetch_from(&WholeShard::default(), &[0, 2]);
    let whole = named(fetched.and_then(|fetched| array.decode(&[0, 2], fetched)), &[0, 2], case);
    assert_eq!(named(scratch.strict().read_chunk(&[0, 2]), &[0, 2], case), whole, "{case}");
    whole
}

fn sharded(crc: bool, chunk: Vec<u8>) -> Scratch {
    let codecs = in_shards(&[2, 3], json!([{ "name": "bytes" }, zstd_codec()]), index_codecs(crc));
    Scratch::of(&v3(&[4, 12], &[4, 6], "uint8", codecs), &[("c/0/1", chunk)])
}

#[test]
fn shard_indices() {
    let inner = [zstd(&[1; 6]), zstd(&[2; 6]), zstd(&[3; 6]), zstd(&[4; 6])].map(Some);
    let good = shard(&inner, false);
    let index = good.len() - 64;
    let entry = |offset: u64, length: u64| {
        let bytes = [offset.to_le_bytes(), length.to_le_bytes()].concat();
        patched(&good, index + 32, &bytes)
    };
    let scratch = sharded(false, good.clone());
    assert_eq!(scratch.strict().read_chunk(&[0, 3]).unwrap().bytes, [2; 6]);
    // The entry is that of another chunk of the shard, but no chunk is read by an index that lies.
    let cases = [
        ("empty", vec![], "shorter than the shard index"),
        ("shorter than its index", good[index + 1..].to_vec(), "shorter than the shard index"),
        ("overflow", entry(u64::MAX - 4, 8), "the shard index claims"),
        ("overflow to 0", entry(u64::MAX, 1), "the shard index claims"),
        ("offset 2^63", entry(1 << 63, 8), "the shard index claims"),
        ("length 2^63", entry(0, 1 << 63), "the shard index claims"),
        ("length MAX", entry(0, u64::MAX), "the shard index claims"),
        ("past the end", entry(good.len() as u64 - 1, 2), "the shard index claims"),
        ("at the end", entry(good.len() as u64, 0), "the shard index claims"),
        ("half missing", entry(u64::MAX, 0), "the shard index claims"),
        ("the index itself", entry(index as u64, 64), "the shard index claims"),
        ("without its crc", good[1..].to_vec(), "the shard index claims"),
        (
            "a chunk too long",
            shard(&[None, None, Some(vec![0; 65_550]), None], false),
            "an inner chunk has 65550 bytes",
        ),
        ("too long", [vec![0; 80 << 10], good.clone()].concat(), "its file has"),
    ];
    for (case, chunk, words) in cases {
        let why = of_shard(&sharded(false, chunk), case);
        assert!(why.starts_with("shard c/0/1: ") && why.contains(words), "{case}: {why}");
    }
    let first = |chunk: Vec<u8>| shard(&[Some(chunk), None, None, None], false);
    for (case, chunk, words) in [
        ("missing", shard(&[None, inner[1].clone(), None, inner[3].clone()], false), "it is missing"),
        ("a claim inside", first(zstd_claim(1 << 50)), "expected at most 6"),
        ("a bomb inside", first(zstd(&vec![0; 1 << 24])), "expected at most 6"),
        ("of no bytes", first(vec![]), "zstd"),
    ] {
        let why = of_shard(&sharded(false, chunk), case);
        assert!(why.contains(words), "{case}: {why}");
    }
    let with_crc = shard(&inner, true);
    let flipped = patched(&with_crc, with_crc.len() - 10, &[with_crc[with_crc.len() - 10] ^ 4]);
    assert!(of_shard(&sharded(true, flipped), "index crc").contains("shard c/0/1: shard index: the crc32c"));
    assert!(of_shard(&sharded(true, good), "no index crc").contains("shard index"));
}

/// Any six bytes are a valid uncompressed inner chunk, even those of the index or of a neighbouring chunk.
#[test]
fn inner_chunks_that_overlap() {
    let good = shard(&[vec![1; 6], vec![2; 6], vec![3; 6], vec![4; 6]].map(Some), false);
    let codecs = in_shards(&[2, 3], bytes(), index_codecs(false));
    let scratch = Scratch::of(&v3(&[4, 12], &[4, 6], "uint8", codecs), &[("c/0/1", good.clone())]);
    assert_eq!(scratch.strict().read_chunk(&[1, 3]).unwrap().bytes, [4; 6]);
    for (at, words) in [(20, "0..24"), (u64::MAX - 2, "0..24"), (12, "overlap"), (14, "overlap")] {
        scratch.put("a/c/0/1", patched(&good, 24 + 48, &at.to_le_bytes()));
        let why = of_shard(&scratch, "an entry that is another's");
        assert!(why.contains(words), "{why}");
    }
    // The shard lost its first bytes, so the last entry points to six bytes of the index.
    scratch.put("a/c/0/1", &good[6..]);
    assert!(of_shard(&scratch, "cut").contains("6 bytes at 18"));
}

/// If random bytes are changed, decoding either fails or gives a chunk of the right size.
#[test]
fn flipped_bytes_never_panic() {
    use BloscCompressor as C;
    use BloscShuffleMode as S;
    let plain = plain();
    let inner: Vec<_> = (0..4).map(|i| Some(zstd(&[i; 6]))).collect();
    let stores = [
        (v2_store(&blosc_meta(), vec![]), blosc(&plain)),
        (v2_store(&blosc_meta(), vec![]), blosc_with(&plain, C::LZ4, S::Shuffle, 4)),
        (v2_store(&blosc_meta(), vec![]), blosc_with(&plain, C::BloscLZ, S::NoShuffle, 1)),
        (v3_store(&[zstd_codec()], vec![]), zstd(&plain)),
        (v3_store(&[zstd_codec()], vec![]), zstd_stream(&plain)),
        (v3_store(&[gzip_codec()], vec![]), gzip(&plain)),
        (v3_store(&[zlib_codec()], vec![]), zlib(&plain)),
        (sharded(false, vec![]), shard(&inner, false)),
    ];
    for (case, (scratch, good)) in stores.iter().enumerate() {
        // This calls the code below the one that catches panics, which would hide them.
        let array = scratch.open("a").unwrap();
        let Metadata { codecs, spec, shard, .. } = &array.metadata;
        let (mut numbers, mut count) = (Numbers(1000 + case as u64), 0);
        for round in 0..4000 {
            let mut bytes = good.clone();
            for _ in 0..1 + numbers.below(3) {
                // Half of the changes are in the headers, which matter most.
                let end = if numbers.below(2) == 0 { bytes.len().min(32) } else { bytes.len() };
                let at = numbers.below(end);
                bytes[at] = numbers.next().to_le_bytes()[0];
            }
            let leave = numbers.below(2) == 0;
            let places = shard.as_ref().map_or_else(
                || Ok(std::iter::once(0..bytes.len() as u64).collect::<Vec<_>>()),
                |shard| {
                    let index = shard.index(&bytes)?;
                    Ok::<_, Fault>((0..4).filter_map(|number| shard.range(index, number)).collect())
                },
            );
            let chunks = places.into_iter().flatten().map(|place| slice(&bytes, place));
            for (mut decoded, planes) in
                chunks.flat_map(|chunk| codecs.decode(Cow::Borrowed(chunk), spec, leave))
            {
                planes.map_or(Ok(()), |planes| planes.undo(&mut decoded)).unwrap();
                assert_eq!(decoded.len(), spec.bytes(), "store {case}, round {round}");
                count += 1;
            }
        }
        assert!(count > 0, "store {case}");
    }
}
