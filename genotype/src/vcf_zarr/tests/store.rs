//! Tests of finding genotypes, samples and variants in a store.

use super::*;
use crate::tests::{contigs_of, variant};

pub(super) fn open(scratch: &Scratch, array: Option<&str>) -> teatime::Result<GenotypeStore> {
    GenotypeStore::open(scratch.path(), array, MissingChunk::Error)
}

pub(super) fn put_genotypes(scratch: &Scratch, path: &str, variants: u64, samples: u64) {
    let n = usize::try_from(variants * samples * 2).unwrap();
    scratch.numbers(path, &[variants, samples, 2], &vec![1_i8; n]);
}

pub(super) fn put_text(scratch: &Scratch, path: &str, strings: &[&str]) {
    scratch.text(path, &[strings.len() as u64], strings);
}

pub(super) fn put_i32(scratch: &Scratch, path: &str, numbers: &[i32]) {
    scratch.numbers(path, &[numbers.len() as u64], numbers);
}

pub(super) fn vcf(samples: &[&str]) -> Scratch {
    let scratch = Scratch::group();
    put_genotypes(&scratch, "call_genotype", 3, samples.len() as u64);
    put_text(&scratch, "sample_id", samples);
    put_text(&scratch, "contig_id", &["1", "X"]);
    put_i32(&scratch, "variant_contig", &[0, 0, 1]);
    put_i32(&scratch, "variant_position", &[5, 9, 2]);
    scratch.text("variant_allele", &[3, 3], &["A", "T", "", "C", "G", "TT", "G", "", ""]);
    scratch
}

#[test]
fn vcf_zarr() {
    let scratch = vcf(&["a", "b"]);
    let store = open(&scratch, None).unwrap();
    assert_eq!(store.kind(), GenotypeKind::Calls { ploidy: 2 });
    assert_eq!((store.n_variants(), store.n_samples(), store.arrays().len()), (3, 2, 1));
    assert_eq!(ids(&store), ["a", "b"]);
    let variants = store.variants(0..3).unwrap();
    let expected = [("1", 5, ["A", "T"]), ("1", 9, ["C", "G,TT"]), ("X", 2, ["G", "."])];
    assert_eq!(variants, expected.map(|(contig, position, alleles)| variant(contig, position, ".", alleles)));
    assert_eq!(store.variants(1..2).unwrap(), variants[1..2]);
    assert_eq!(store.variants(3..3).unwrap(), []);
    for range in [0..4, 4..4, u64::MAX - 1..u64::MAX] {
        assert!(matches!(store.variants(range), Err(Error::Argument { .. })));
    }
}

#[test]
fn a_named_array_beside_the_variants_has_them() {
    let scratch = vcf(&["a", "b"]);
    scratch.numbers("call_DS", &[3, 2], &[0_f32; 6]);
    let store = open(&scratch, Some("/call_DS")).unwrap();
    assert_eq!(store.kind(), GenotypeKind::Dosages);
    assert_eq!(ids(&store), ["a", "b"]);
    assert_eq!(store.variants(2..3).unwrap()[0].position, 2);
}

#[test]
fn unsupported_neighbours_do_no_harm_until_they_are_needed() {
    let scratch = vcf(&["a", "b"]);
    scratch.array("variant_id", v2(None, &[3], &[3]));
    scratch.edit("variant_id/.zarray", |metadata| {
        metadata["compressor"] = json!({ "id": "lz4" });
        metadata["filters"] = json!([{ "id": "pickle" }]);
    });
    scratch.put("variant_XX/.zarray", "nonsense");
    let store = open(&scratch, None).unwrap();
    assert_eq!(ids(&store), ["a", "b"]);
    refused(store.variants(0..1), &["variant_id", "`pickle`"]);
}

#[test]
fn sample_ids_are_checked() {
    refused(open(&vcf(&["a", "b", "a"]), None).unwrap().sample_ids(), &["`a` occurs more than once"]);
    let scratch = vcf(&["a", "b"]);
    put_text(&scratch, "sample_id", &["a", "b", "c"]);
    refused(open(&scratch, None).unwrap().sample_ids(), &["3 rows, expected 2"]);
}

#[test]
fn variants_are_checked() {
    for (array, numbers, row, words) in [
        ("variant_contig", &[0, -1, 2][..], 1, "contig -1 of 2"),
        ("variant_contig", &[0, -1, 2], 2, "contig 2 of 2"),
        ("variant_position", &[1, 2, -3], 2, "position -3"),
        ("variant_position", &[1, 2], 0, "expected 3"),
    ] {
        let scratch = vcf(&["a"]);
        put_i32(&scratch, array, numbers);
        let store = open(&scratch, None).unwrap();
        refused(store.variants(row..row + 1), &[words]);
        assert!(numbers.len() < 3 || store.variants(0..1).is_ok(), "others can be read");
    }
    let scratch = vcf(&["a"]);
    scratch.lose("variant_position");
    refused(open(&scratch, None).unwrap().variants(0..1), &["no array `variant_position`"]);
}

pub(super) fn contig(scratch: &Scratch, group: &str, positions: &[i32]) {
    let at = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
    put_genotypes(scratch, &at("calldata/GT"), positions.len() as u64, 2);
    put_i32(scratch, &at("variants/POS"), positions);
    let n = positions.len();
    put_text(scratch, &at("variants/REF"), &vec!["A"; n]);
    scratch.text(&at("variants/ALT"), &[n as u64, 2], &vec!["A"; 2 * n]);
}

#[test]
fn contigs_in_natural_order() {
    let scratch = Scratch::group();
    for (group, position) in [("10", 100), ("2", 20), ("X", 7), ("1", 10)] {
        contig(&scratch, group, &[position, position + 1]);
    }
    put_text(&scratch, "samples", &["a", "b"]);
    let store = open(&scratch, None).unwrap();
    assert_eq!((store.n_variants(), store.arrays().len()), (8, 4));
    assert_eq!(ids(&store), ["a", "b"]);
    let variants = store.variants(1..7).unwrap();
    let places: Vec<_> = variants.iter().map(|v| (&*v.contig, v.position)).collect();
    assert_eq!(places, [("1", 11), ("2", 20), ("2", 21), ("10", 100), ("10", 101), ("X", 7)]);
    assert_eq!((&*variants[0].reference, &*variants[0].alternate), ("A", "A,A"));

    let one = open(&scratch, Some("10/calldata/GT")).unwrap();
    assert_eq!(one.variants(0..1).unwrap()[0].position, 100);
    assert_eq!(ids(&one), ["a", "b"]);
}

#[test]
fn contigs_that_disagree() {
    let scratch = Scratch::group();
    contig(&scratch, "1", &[1]);
    contig(&scratch, "2", &[1]);
    put_text(&scratch, "1/samples", &["a", "b"]);
    put_text(&scratch, "2/samples", &["a", "c"]);
    refused(open(&scratch, None).unwrap().sample_ids(), &["`b`", "`c`", "2/samples"]);
    put_genotypes(&scratch, "3/calldata/GT", 2, 5);
    refused(open(&scratch, None), &["3/calldata/GT", "[2, 5, 2]"]);
}

/// The group of one contig is a store of its own, which takes sample names from its parent group.
#[test]
fn names_of_the_group_above() {
    let scratch = Scratch::group();
    for group in ["set/2L", "set/3R"] {
        contig(&scratch, group, &[10, 20]);
        scratch.put(&format!("{group}/.zgroup"), r#"{"zarr_format":2}"#);
    }
    let one = |array| GenotypeStore::open(scratch.path().join("set/2L"), array, MissingChunk::Error).unwrap();
    assert_eq!(one(None).sample_ids().unwrap(), None);
    put_text(&scratch, "set/samples", &["a", "b"]);
    // The parent is not a group yet, so its arrays are not used.
    assert_eq!(one(None).sample_ids().unwrap(), None);
    scratch.put("set/.zgroup", r#"{"zarr_format":2}"#);
    for array in [None, Some("calldata/GT"), Some("/calldata/GT")] {
        assert_eq!(ids(&one(array)), ["a", "b"]);
        assert_eq!(&*one(array).variants(1..2).unwrap()[0].contig, "2L");
    }
    assert_eq!(ids(&open(&scratch, Some("set/3R/calldata/GT")).unwrap()), ["a", "b"]);
    // The contig's own names come first; names of a wrong number of samples are an error.
    put_text(&scratch, "set/2L/samples", &["c", "d"]);
    assert_eq!(ids(&one(None)), ["c", "d"]);
    scratch.lose("set/2L/samples");
    put_text(&scratch, "set/samples", &["a", "b", "c"]);
    refused(one(None).sample_ids(), &["set/samples", "3 rows, expected 2"]);
}

#[test]
fn names_that_some_contigs_lack() {
    let scratch = Scratch::group();
    contig(&scratch, "1", &[1]);
    contig(&scratch, "2", &[1]);
    assert_eq!(open(&scratch, None).unwrap().sample_ids().unwrap(), None);
    put_text(&scratch, "1/samples", &["a", "b"]);
    refused(open(&scratch, None).unwrap().sample_ids(), &["2/calldata/GT", "`1/samples`"]);
}

#[test]
fn names_that_are_numbers() {
    let scratch = vcf(&["a", "b"]);
    scratch.numbers("sample_id", &[2], &[1_000_000_000_000_i64, -7]);
    scratch.numbers("contig_id", &[2], &[1_u8, 20]);
    let store = open(&scratch, None).unwrap();
    assert_eq!(ids(&store), ["1000000000000", "-7"]);
    assert_eq!(&*store.variants(2..3).unwrap()[0].contig, "20");
    assert_eq!(contigs_of(&store), [("1".to_owned(), 2), ("20".to_owned(), 1)]);
    scratch.numbers("sample_id", &[2], &[1.0_f64, 2.0]);
    refused(open(&scratch, None).unwrap().sample_ids(), &["sample_id", "holds no integers"]);
}

/// If one contig of several loses its genotypes, the rest is not opened as a store.
#[cfg(unix)]
#[test]
fn contigs_that_lost_their_genotypes() {
    let scratch = Scratch::group();
    for group in ["2L", "3R"] {
        contig(&scratch, group, &[10, 20]);
    }
    let lost = scratch.path().join("3R/calldata/GT/.zarray");
    let refused_with = |words: &str| {
        refused(open(&scratch, None), &["3R/calldata/GT", words]);
        assert!(open(&scratch, Some("2L/calldata/GT")).is_ok());
    };
    fs::remove_file(&lost).unwrap();
    refused_with("name the array to use");
    fs::create_dir(&lost).unwrap();
    refused_with("not a file");
    fs::remove_dir(&lost).unwrap();
    std::os::unix::fs::symlink("nowhere", &lost).unwrap();
    refused_with("link to nothing");
    fs::remove_file(&lost).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lost).status().unwrap().success());
    refused_with("not a file");
    scratch.lose("3R/calldata");
    refused_with("name the array to use");
    scratch.lose("3R");
    std::os::unix::fs::symlink("nowhere", scratch.path().join("3R")).unwrap();
    refused_with("name the array to use");
    fs::remove_file(scratch.path().join("3R")).unwrap();
    assert_eq!(open(&scratch, None).unwrap().n_variants(), 2);
}

#[test]
fn allel_at_the_root() {
    let scratch = Scratch::group();
    contig(&scratch, "", &[4, 8]);
    put_text(&scratch, "variants/CHROM", &["2L", "3R"]);
    put_text(&scratch, "variants/ID", &["rs1", "."]);
    let store = open(&scratch, None).unwrap();
    let variants = store.variants(0..2).unwrap();
    assert_eq!((&*variants[0].contig, &*variants[0].id, &*variants[1].contig), ("2L", "rs1", "3R"));
    assert_eq!(store.sample_ids().unwrap(), None);
}

#[test]
fn plain_arrays() {
    let scratch = Scratch::new();
    scratch.numbers("", &[4, 3], &[0_f64; 12]);
    let store = open(&scratch, None).unwrap();
    assert_eq!((store.kind(), store.n_variants(), store.n_samples()), (GenotypeKind::Dosages, 4, 3));
    assert_eq!(store.sample_ids().unwrap(), None);
    let variant = &store.variants(2..3).unwrap()[0];
    assert_eq!((&*variant.contig, variant.position, &*variant.alternate), (".", 2, "."));
    assert_eq!(store.arrays()[0].read_chunk(&[0, 0]).unwrap().bytes.len(), 96);
}

#[test]
fn stores_that_are_none() {
    let scratch = Scratch::new();
    refused(open(&scratch, None), &["not a Zarr store"]);
    scratch.put("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    put_i32(&scratch, "some_array", &[1]);
    refused(open(&scratch, None), &["call_genotype", "some_array"]);
    scratch.put("file", "x");
    let inner = |name: &str| GenotypeStore::open(scratch.path().join(name), None, MissingChunk::Error);
    refused(inner("file"), &["is a file"]);
    assert_err!(inner("absent"), Error::Io { .. });
    refused(open(&scratch, Some("absent")), &["no such array"]);
}

#[test]
fn wrong_ranks_types_and_axes() {
    use StoredType as T;
    let cases = [
        (v2(T::I8, &[4], &[4]), "1 axes"),
        (v2(T::I8, &[4, 3, 2, 1], &[4, 3, 2, 1]), "4 axes"),
        (v2(T::F32, &[4, 3, 2], &[4, 3, 2]), "calls are integers"),
        (v2(T::I8, &[4, 3, 0], &[4, 3, 1]), "no alleles"),
        (v2(T::Bool, &[4, 3], &[4, 3]), "booleans"),
    ];
    for (spec, why) in cases {
        let scratch = Scratch::new();
        scratch.array("x", spec);
        refused(open(&scratch, Some("x")), &[why]);
    }
    for (axis, why) in ["variants", "samples"].into_iter().enumerate() {
        let scratch = Scratch::new();
        scratch.array("x", v2(T::I8, &[4, 3], &[4, 3]));
        scratch.edit("x/.zarray", |metadata| metadata["shape"][axis] = (1_u64 << 40).into());
        refused(open(&scratch, Some("x")), &[why]);
    }
    let scratch = Scratch::new();
    let mut spec = v2(T::I8, &[4, 3], &[4, 3]);
    spec.axes = vec!["samples".into(), "variants".into()];
    scratch.array("x", spec);
    refused(open(&scratch, Some("x")), &["variants have to come first"]);
}

/// Early sgkit wrote contigs as an attribute; some copies of stores lost the metadata file of the group.
#[test]
fn contigs_of_an_attribute_and_a_group_without_its_file() {
    let scratch = vcf(&["a", "b"]);
    let variants = open(&scratch, None).unwrap().variants(0..3).unwrap();
    scratch.lose("contig_id");
    let read = || open(&scratch, None).unwrap().variants(0..3);
    refused(read(), &["`contig_id`", "`contigs`"]);
    scratch.put(".zattrs", json!({ "contigs": ["1", 2] }).to_string());
    refused(read(), &["`contigs`"]);
    scratch.put(".zattrs", json!({ "contigs": ["1", "X"] }).to_string());
    assert_eq!(read().unwrap(), variants);
    scratch.lose(".zgroup");
    assert_eq!(read().unwrap(), variants);

    let scratch = Scratch::new();
    put_genotypes(&scratch, "calls", 3, 2);
    refused(open(&scratch, None), &["name the array", "calls"]);
    assert_eq!(open(&scratch, Some("calls")).unwrap().n_variants(), 3);
}
