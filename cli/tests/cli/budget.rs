//! Tests of stores that claim to be larger than memory: teatime refuses them within the given memory and names the sizes before it allocates.
//!
//! The shell limits the memory that the command may map. Beyond the limit an allocation aborts, unless the library checks it first.

use std::{fs, io::Write};

use serde_json::{Value, json};
use teatime::store::write_npy;

use crate::{
    blur_stopped::image,
    support::{Ran, Scratch, assert_has, empty_array, least, run, store},
};

/// The memory in KiB that the command maps before it reads anything, with some room: whole programs and the stack of each thread are mapped.
const BASE: u64 = 400 << 10;

/// Runs a command with `kib` KiB of memory beyond [`BASE`].
fn limited(scratch: &Scratch, words: &str, kib: u64) -> Ran {
    let mut command = scratch.behind(&format!("ulimit -v {} && exec", BASE + kib), words);
    // All threads share one heap, since each heap maps 64 MiB.
    command.env("MALLOC_ARENA_MAX", "1");
    run(command)
}

/// Runs `teatime pca` for one component with `kib` KiB of memory beyond [`BASE`], asserts that it fails, and returns the error.
fn pca(scratch: &Scratch, words: &str, kib: u64) -> String {
    let Ran { code, err, .. } = limited(scratch, &format!("pca {words} --out out -k 1"), kib);
    assert!(code == 1 && !scratch.join("out").exists(), "{code} {err}");
    err
}

/// Runs with 64 MiB and expects an error with these words.
#[track_caller]
fn too_small(scratch: &Scratch, words: &str, said: &str) -> String {
    let why = pca(scratch, &format!("{words} --memory 64M --threads 2"), 64 << 10);
    assert_has(&why, &[said]);
    why
}

fn edit(scratch: &Scratch, array: &str, changes: &[(&str, Value)]) {
    let file = format!("{array}/.zarray");
    let mut metadata = scratch.json(&file);
    changes.iter().for_each(|(key, value)| metadata[*key] = value.clone());
    scratch.write(&file, metadata.to_string());
}

const TOO_SMALL: &str = "memory budget of 64.0 MiB is too small";

#[test]
fn columns_that_claim_much() {
    let scratch = Scratch::new();
    for (name, chunk) in [("names/sample_id", "0"), ("alleles/variant_allele", "0.0")] {
        store(&scratch.join(name.split('/').next().unwrap()), &["a", "b"], &[&[0, 1], &[1, 0]]);
        fs::remove_file(scratch.join(name).join(chunk)).unwrap();
    }
    let (names, fill) = ("names/sample_id", json!("A".repeat(100_000)));
    edit(&scratch, names, &[("fill_value", fill), ("chunks", json!([1 << 20]))]);
    too_small(&scratch, "names", "sample_id: chunk [0]: it is missing");
    edit(&scratch, names, &[("chunks", json!([1 << 24]))]);
    too_small(&scratch, "names", TOO_SMALL);
    let alleles = "alleles/variant_allele";
    edit(&scratch, alleles, &[("shape", json!([2, 65536])), ("chunks", json!([256, 65536]))]);
    too_small(&scratch, "alleles --loadings", TOO_SMALL);
    edit(&scratch, alleles, &[("chunks", json!([8, 65536]))]);
    too_small(&scratch, "alleles --loadings", "variant_allele: chunk [0, 0]: it is missing");
}

#[test]
fn arrays_that_claim_much() {
    let scratch = Scratch::new();
    for (name, shape, chunks, said) in [
        ("samples", &[2, 1 << 26][..], &[2, 1 << 26][..], TOO_SMALL),
        ("chunks", &[2, 65536, 120], &[1, 1, 1], TOO_SMALL),
        ("bands", &[1 << 34, 65536], &[16384, 1], TOO_SMALL),
        ("more_bands", &[1 << 34, 65536], &[4096, 1], "4194304 chunks"),
    ] {
        empty_array(&scratch.join(name), "|i1", shape, chunks);
        let why = too_small(&scratch, name, said);
        // The memory for bookkeeping of 16 million chunks counts too.
        assert!(name != "chunks" || least(&why) > 2 << 30, "{why}");
    }
}

/// The memory that the message names covers what decoding takes in addition to its results, whatever the number of threads.
#[test]
fn decoders_keep_to_the_memory() {
    let scratch = Scratch::new();
    empty_array(&scratch.join("turned"), "|i1", &[1 << 19, 1024], &[1 << 19, 64]);
    let gzip = json!({ "id": "gzip", "level": 1 });
    edit(&scratch, "turned", &[("order", json!("F")), ("compressor", gzip)]);
    // An invalid dosage ends the run as soon as the first rows are decoded, which need every chunk.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&vec![9; 32 << 20]).unwrap();
    let chunk = gzip.finish().unwrap();
    (0..16).for_each(|i| scratch.write(&format!("turned/0.{i}"), &chunk));
    let words = "turned --threads 16 --method exact --memory";
    let least = least(&pca(&scratch, &format!("{words} 64M"), 64 << 10));
    let why = pca(&scratch, &format!("{words} {least}"), least >> 10);
    assert!(why.contains("chunk [0, 0]") && why.contains('9'), "{why}");
}

#[test]
fn no_memory_is_no_damage() {
    let scratch = Scratch::new();
    empty_array(&scratch.join("large"), "|i1", &[1 << 20, 1024], &[1 << 20, 1024]);
    scratch.write("large/0.0", []);
    edit(&scratch, "large", &[("compressor", json!({ "id": "zlib", "level": 1 }))]);
    let why = pca(&scratch, "large --memory 64G --threads 2", 64 << 10);
    assert_has(&why, &["chunk [0, 0]: out of memory: 1073741824 bytes"]);
}

/// Neighbors within a radius take memory as they are found. If there is no more, they are counted.
#[test]
fn neighbors_take_no_more_than_there_is() {
    let scratch = Scratch::new();
    let rows: Vec<f32> = (0..9000).map(|i| (i * 7919 % 1013) as f32).collect();
    write_npy(scratch.join("x.npy"), &rows, [9000, 1]).unwrap();
    let pairwise = |memory: &str| {
        let words = format!("pairwise x.npy --out d.zarr --radius inf --threads 2 --memory {memory}");
        limited(&scratch, &words, 256 << 10).err
    };
    // Half of 256 MiB holds four of the 81 million neighbors.
    let said = "budget, for the 80991000 neighbors within inf, of 256.0 MiB is too small";
    assert_has(&pairwise("256M"), &[said]);
    assert_has(&pairwise("64G"), &["the 80991000 neighbors within inf: out of memory"]);
}

/// For every command, the minimum memory that an error names is enough, and one byte less is not, or all errors below name the same.
#[test]
fn the_least_that_is_named_is_enough() {
    let scratch = Scratch::new();
    scratch.ok("demo --variants 1500 --samples 90 -k 3 --out demo");
    scratch.ok("demo --variants 9000 --samples 60 -k 3 --out large");
    scratch.ok("pca demo/genotypes.vcz --out reference -k 3 --loadings");
    let rows: Vec<f32> = (0..300 * 40).map(|i| (i * 7919 % 1013) as f32).collect();
    write_npy(scratch.join("x.npy"), &rows, [300, 40]).unwrap();
    image(&scratch.join("image.zarr"));
    for command in [
        "pca demo/genotypes.vcz --out NEW --method exact --loadings",
        "pca demo/genotypes.vcz --out NEW --method randomized --loadings",
        "pca large/genotypes.vcz --out NEW --method randomized --device cpu,cpu",
        "grm demo/genotypes.vcz --out NEW",
        "project demo/genotypes.vcz --loadings reference/loadings.tsv.gz --out NEW",
        "distance demo/genotypes.vcz --out NEW.npy",
        "distance demo/genotypes.vcz --out NEW.npy --metric canberra",
        "distance demo/genotypes.vcz --out NEW.zarr",
        "distance demo/genotypes.vcz --out NEW.tsv --neighbors 4",
        "distance demo/genotypes.vcz --out NEW.npy --with demo/genotypes.vcz",
        "pairwise x.npy --out NEW.npy --metric cosine",
        "pairwise x.npy --out NEW.npy --with x.npy",
        "pairwise x.npy --out NEW.zarr",
        "pairwise x.npy --out NEW.zarr --resume",
        "pairwise x.npy --out NEW.zarr --device cpu,cpu",
        "pairwise x.npy --out NEW.tsv --neighbors 4",
        "pairwise x.npy --out NEW.tsv --neighbors 4 --device cpu,cpu",
        "pairwise x.npy --out NEW.npy --device cpu,cpu",
        "pairwise x.npy --out NEW.zarr --radius 100",
        "pairwise x.npy --out NEW.tsv --radius 100 --device cpu,cpu",
        "svd x.npy --out NEW --center rows --left --right",
        "svd x.npy --out NEW --method exact --left",
        "svd x.npy --out NEW --method randomized --left --resume",
        "blur x.npy NEW.npy --sigma 3",
        "blur x.npy NEW.zarr --sigma 3",
        "blur x.npy NEW.zarr --sigma 3 --device cpu,cpu",
        "blur @ome_0.4.zarr NEW.zarr --sigma 0.1 --pyramid",
        "blur image.zarr NEW.zarr --sigma 0.5 --pyramid",
        "blur image.zarr NEW.zarr --sigma 3 --pyramid --chunks 20,500",
        "blur image.zarr NEW.zarr --sigma 1 --pyramid --dtype f64 --resume --device cpu,cpu",
        "denoise x.npy NEW.npy --iterations 9",
        "denoise x.npy NEW.npy --eps 1e-3",
        "denoise image.zarr NEW.zarr --eps 0.01 --pyramid --chunks 100,100",
        "denoise image.zarr NEW.npy --eps 0.3 --device cpu,cpu",
        "denoise x.npy NEW.zarr --weight 20",
    ] {
        let within = |memory: u64| {
            let words = command.replace("NEW", &format!("results/{memory}"));
            scratch.run(&format!("{words} --memory {memory}"))
        };
        let enough = least(&within(1).err);
        // By an eps, the image alone tells how many iterations there are. Fewer need less, but the error has to be right for any number.
        let may_end_early = command.contains("--eps");
        let lower = if may_end_early { vec![enough / 4, enough / 2, enough - 1] } else { vec![enough - 1] };
        for less in lower.into_iter().map(within) {
            let is_refused = less.code == 1 && least(&less.err) == enough;
            assert!(is_refused || may_end_early && less.code == 0, "{command}: {}", less.err);
        }
        let enough = within(enough);
        assert_eq!(enough.code, 0, "{command}: {}", enough.err);
        fs::remove_dir_all(scratch.join("results")).unwrap();
    }
}
