//! Tests of .bed files: plink2's files against its own VCF export, random files against the definition of the format.

mod tables;

use std::{fs, path::PathBuf, sync::Arc};

use rayon::prelude::*;
use teatime::{Device, Error, Run, assert_err, openings::elements, random::philox, store::MemoryArray};

use super::*;
use crate::{
    GenotypeKind, Genotypes, PcaOptions, VariantSource,
    intake::Form,
    pca,
    tests::{Scratch, assert_refused as refused, fixture},
    to_usize,
};

impl Scratch {
    /// Writes the tables of `name` and a .bed of this mode and these calls; returns the path of the .bed.
    fn bed(&self, name: &str, [variants, samples]: [usize; 2], mode: u8, calls: &[u8]) -> PathBuf {
        let samples = (0..samples).map(|i| format!("f{}\ti{i}\t0\t0\t0\t-9\n", i % 7));
        self.put(&format!("{name}.fam"), samples.collect::<String>());
        let variants = (0..variants).map(|i| format!("1\tv{i}\t0\t{}\tA\tC\n", 100 + i));
        self.put(&format!("{name}.bim"), variants.collect::<String>());
        self.put(&format!("{name}.bed"), [&[0x6c, 0x1b, mode], calls].concat())
    }
}

/// Returns all rows.
fn rows(bed: &BedFile) -> Vec<u8> {
    elements(Arc::clone(bed.array()))
}

/// Returns the copies of A1 by PLINK's definition, -1 for missing calls.
fn copies_of_a1(bed: &BedFile) -> Vec<i8> {
    let width = to_usize(bed.array().shape()[1]);
    let row = |row: &[u8]| -> Vec<i8> {
        let call = |sample: usize| match (row[sample / 4] >> (sample % 4 * 2)) & 3 {
            0b00 => 2,
            0b01 => -1,
            0b10 => 1,
            _ => 0,
        };
        (0..to_usize(bed.n_samples())).map(call).collect()
    };
    rows(bed).chunks(width).flat_map(row).collect()
}

#[test]
fn plink2_exports_the_same_calls() {
    for n in [1, 3, 4, 5] {
        let bed = BedFile::open(fixture(&format!("plink1/few{n}.bed"))).unwrap();
        let vcf = fs::read_to_string(fixture(&format!("plink1/few{n}.vcf"))).unwrap();
        let lines: Vec<Vec<&str>> = vcf
            .lines()
            .filter(|line| !line.starts_with("##"))
            .map(|line| line.split('\t').collect())
            .collect();
        let ids: Vec<&str> = bed.samples().iter().map(|sample| &*sample.id).collect();
        assert_eq!(ids, lines[0][9..], "{n}");
        let dosage = |call: &&str| match *call {
            "./." => -1,
            call => i8::try_from(call.matches('1').count()).unwrap(),
        };
        let theirs: Vec<i8> = lines[1..].iter().flat_map(|line| line[9..].iter().map(dosage)).collect();
        assert!(theirs.contains(&-1) && theirs.contains(&1) && theirs.contains(&2));
        assert_eq!(copies_of_a1(&bed), theirs, "{n}");
        let variants = bed.variants(0..bed.n_variants()).unwrap();
        assert_eq!(variants.len() + 1, lines.len());
        for (v, line) in variants.iter().zip(&lines[1..]) {
            let ours = [&*v.contig, &v.position.to_string(), &v.id, &v.reference, &v.alternate];
            assert_eq!(ours, line[..5]);
        }
    }
}

#[test]
fn codes_count_either_allele() {
    let genotypes = BedFile::open(fixture("plink1/few5")).unwrap().genotypes().unwrap();
    assert_eq!((genotypes.kind(), genotypes.variants(), genotypes.samples()), (GenotypeKind::Plink, 17, 5));
    let [a1, a2] = [1, 0].map(|allele| genotypes.clone().count_allele(allele).unwrap());
    assert_eq!([&genotypes, &a1, &a2].map(Genotypes::counted_allele), [Some(1), Some(1), Some(0)]);
    // Code 0 is two copies of A1, 1 a missing call, 2 one copy of each, 3 two copies of A2.
    for (genotypes, codes) in [(&genotypes, [2, 3, 1, 0]), (&a1, [2, 3, 1, 0]), (&a2, [0, 3, 1, 2])] {
        assert_eq!(Form::new(genotypes, false).0, Form::Packed(codes));
    }
    refused(genotypes.count_allele(2), &["2 of a .bed"]);
}

#[cfg(feature = "zarr")]
#[test]
fn bio2zarr_has_the_same_calls_names_and_variants() {
    use teatime::MissingChunk;

    use crate::GenotypeStore;

    let bed = BedFile::open(fixture("plink1/biallelic.bed")).unwrap();
    let store = GenotypeStore::open(fixture("biallelic.vcz"), None, MissingChunk::Error).unwrap();
    assert_eq!((bed.n_variants(), bed.n_samples()), (store.n_variants(), store.n_samples()));
    // bio2zarr stored the calls as a single chunk.
    let calls = store.arrays()[0].read_chunk(&[0, 0, 0]).unwrap().bytes;
    let dosage = |call: &[u8]| match (call[0] | call[1]) >= 0x80 {
        true => -1,
        false => i8::from(call[0] > 0) + i8::from(call[1] > 0),
    };
    assert_eq!(calls.len(), 237 * 60 * 2);
    assert_eq!(copies_of_a1(&bed), calls.chunks(2).map(dosage).collect::<Vec<_>>());
    let ids: Vec<String> = bed.samples().iter().map(|sample| sample.id.clone()).collect();
    assert_eq!(Some(ids), store.sample_ids().unwrap());
    assert_eq!(bed.samples()[20], Sample { family: "B".into(), id: "B00".into() });
    assert_eq!(bed.variants(0..237).unwrap(), store.variants(0..237).unwrap());
}

#[test]
fn plink2_writes_the_same_sample_major() {
    let one = BedFile::open(fixture("plink1/biallelic")).unwrap();
    let options = BedOptions::default();
    let options = options.bim(fixture("plink1/biallelic.bim")).fam(fixture("plink1/biallelic.fam"));
    let other = BedFile::open_with(fixture("plink1/sample_major.bed"), &options).unwrap();
    assert_eq!(one.array().shape(), other.array().shape());
    assert_eq!([one.bim(), one.fam()], [other.bim(), other.fam()]);
    assert!(rows(&one) == rows(&other));
}

/// [variants, samples] around the sizes of bytes, strips of samples, tiles of variants, and chunks in either order.
const SIZES: [[usize; 2]; 12] = [
    [1, 1],
    [2, 3],
    [3, 4],
    [5, 5],
    [4, 9],
    [255, 255],
    [256, 256],
    [259, 257],
    [7, 1030],
    [1021, 4],
    [4000, 1201],
    [16_390, 9],
];

#[test]
fn both_orders_are_the_matrix() {
    let scratch = Scratch::new();
    for [variants, samples] in SIZES {
        // The last byte of a row has padding bits: beyond the samples, they are kept; beyond the variants, they are never read.
        let code = |v: usize, s: usize| philox([5, 6], ((v << 16) | s) as u64)[0].to_le_bytes()[0] & 3;
        let pack = |rows: usize, columns: usize, code: &(dyn Fn(usize, usize) -> u8 + Sync)| -> Vec<u8> {
            let byte = |row, b: usize| (0..4).fold(0, |byte, j| byte | (code(row, 4 * b + j) << (2 * j)));
            let row = |row| (0..columns.div_ceil(4)).map(move |b| byte(row, b)).collect::<Vec<_>>();
            (0..rows).into_par_iter().flat_map_iter(row).collect()
        };
        let by_variant = pack(variants, samples, &code);
        let by_sample = pack(samples, variants, &|s, v| code(v, s));
        let padded = pack(variants, samples, &|v, s| if s < samples { code(v, s) } else { 0 });
        for (mode, calls, expected) in [(1, &by_variant, &by_variant), (0, &by_sample, &padded)] {
            let bed = BedFile::open(scratch.bed("data", [variants, samples], mode, calls)).unwrap();
            assert_eq!(bed.array().shape(), [variants as u64, samples.div_ceil(4) as u64]);
            assert!(rows(&bed) == *expected, "{variants} x {samples}, mode {mode}");
        }
    }
}

#[test]
fn chunks_are_neither_small_nor_large() {
    let scratch = Scratch::new();
    let shape = |mode, sizes: [usize; 2]| {
        let [variants, samples] = sizes;
        let bytes = if mode == 1 { variants * samples.div_ceil(4) } else { samples * variants.div_ceil(4) };
        let bed = BedFile::open(scratch.bed("chunks", sizes, mode, &vec![0; bytes])).unwrap();
        bed.array().chunk_shape().to_vec()
    };
    assert_eq!(shape(1, [10, 4]), [10, 1]);
    assert_eq!(shape(1, [5000, 1000]), [4194, 250]);
    assert_eq!(shape(0, [10, 4]), [12, 1]);
    assert_eq!(shape(0, [17_000, 1000]), [16_384, 250]);
    assert_eq!(shape(0, [3000, 100_000]), [2684, 25_000]);
}

#[test]
fn chunks_that_cannot_be_read() {
    let scratch = Scratch::new();
    for mode in [0, 1] {
        let path = scratch.bed("short", [6, 6], mode, &[0; 12]);
        let bed = BedFile::open(&path).unwrap();
        for index in [&[1, 0][..], &[0, 1], &[0], &[0, 0, 0]] {
            assert_err!(bed.array().read_chunk(index), Error::Chunk { .. });
        }
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        let error = refused(bed.array().read_chunk(&[0, 0]), &["short.bed"]);
        assert!(matches!(error, Error::Chunk { .. }), "{error}");
    }
}

#[test]
fn damaged_beds_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.bed("bad", [3, 5], 1, &[0; 6]);
    let with = |bytes: &[u8], words: &[&str]| {
        fs::write(&path, bytes).unwrap();
        refused(BedFile::open(&path), &[&["bad.bed"], words].concat());
    };
    with(&[], &["is empty"]);
    with(&[0x6c, 0x1b], &["too short", "2 of the 3"]);
    with(&[0x6c], &["too short", "1 of the 3"]);
    with(b"PK\x03\x04", &["50 4b", "6c 1b"]);
    with(&[0x6c, 0x1b, 0x10, 0], &["mode 0x10", ".pgen"]);
    let numbers = ["3 variants of", "bad.bim", "5 samples of", "bad.fam", "take 9"];
    with(&[0x6c, 0x1b, 1, 0, 0, 0, 0, 0], &[&["too short", "8 bytes"], &numbers[..]].concat());
    with(&[0x6c, 0x1b, 1, 0, 0, 0, 0, 0, 0, 0], &[&["too long", "10 bytes"], &numbers[..]].concat());
    // In sample-major order, the same calls take 5 bytes, 8 with the header.
    with(&[0x6c, 0x1b, 0, 0, 0, 0, 0, 0, 0], &["9 bytes", "take 8"]);
    fs::write(&path, [0x6c, 0x1b, 0, 0, 0, 0, 0, 0]).unwrap();
    BedFile::open(&path).unwrap();

    fs::remove_file(&path).unwrap();
    for name in ["bad", "bad.bed"] {
        let error = refused(BedFile::open(scratch.path().join(name)), &["bad.bed"]);
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    fs::create_dir(&path).unwrap();
    refused(BedFile::open(&path), &["bad.bed", "is not a file"]);
}

#[test]
fn ranges_of_variants() {
    let scratch = Scratch::new();
    let bed = BedFile::open(scratch.bed("long", [3000, 1], 1, &[0; 3000])).unwrap();
    for range in [0..0, 0..1, 1023..1025, 1024..1024, 1024..2048, 2047..2049, 2999..3000, 3000..3000, 0..3000]
    {
        let variants = bed.variants(range.clone()).unwrap();
        let expected: Vec<String> = range.clone().map(|i| format!("v{i}")).collect();
        assert_eq!(variants.iter().map(|v| v.id.clone()).collect::<Vec<_>>(), expected, "{range:?}");
    }
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for range in [0..3001, 3001..3001, 2..1] {
        assert_err!(bed.variants(range), Error::Argument { .. });
    }
    scratch.put("long.bim", "1 v0 0 100 A C\n");
    refused(bed.variants(0..2), &["long.bim: ends after line 1; it had 3000"]);
}

#[test]
fn names_of_files() {
    let scratch = Scratch::new();
    let open = |name: &str| BedFile::open(scratch.path().join(name)).map(|bed| bed.path().to_path_buf());
    let path = scratch.bed("chr1.kept", [1, 1], 1, &[0]);
    for name in ["chr1.kept", "chr1.kept.bed"] {
        assert_eq!(open(name).unwrap(), path);
    }
    assert!(open("chr1").is_err());
    // The .bed gets another name.
    fs::rename(&path, scratch.path().join("chr1.kept.data")).unwrap();
    assert_eq!(open("chr1.kept.data").unwrap(), scratch.path().join("chr1.kept.data"));
    let at = |name: &str| scratch.path().join(name);
    let options = BedOptions::default().bim(at("chr1.kept.bim")).fam(at("other.fam"));
    refused(BedFile::open_with(at("chr1.kept.data"), &options), &["other.fam"]);
}

#[test]
fn files_of_the_same_samples_are_appended() {
    let open = |name: &str| BedFile::open(fixture("plink1").join(name)).unwrap();
    let arrays = |names: &[&str]| names.iter().map(|name| open(name).array().clone()).collect::<Vec<_>>();
    let plink = |names: &[&str], samples| {
        Genotypes::plink(arrays(names), samples).and_then(|genotypes| genotypes.count_allele(0))
    };
    let both = plink(&["few5", "few5"], 5).unwrap();
    assert_eq!((both.variants(), both.samples(), both.arrays().len()), (34, 5, 2));
    for (result, words) in [
        (plink(&["few5", "biallelic"], 5), "U8 [237, 15]"),
        (plink(&["few5"], 4), "U8 [variants, 1] for 4 samples"),
        (plink(&[], 4), "none given"),
        (plink(&["few4"], 0), "`samples`: 0"),
    ] {
        refused(result, &[words]);
    }
    let dosages = MemoryArray::new("signed", &[0i8; 4], &[4, 1], &[4, 1]).unwrap();
    assert_err!(Genotypes::plink(vec![Arc::new(dosages)], 4), Error::Shape { .. });
}
