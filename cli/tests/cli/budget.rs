//! Stores that claim more than fits: refused within the memory that was given, with the numbers, before it is taken.
//!
//! The shell bounds what the command may map: past that it would abort, and a library that asks first says so.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use teatime::store::write_npy;

use crate::support::{self, Ran, Scratch, empty_array, run, store, teatime};

/// Memory that the command maps before it reads anything, and some room, in KiB: programs are mapped whole, and each thread's stack.
const BASE: u64 = 400 << 10;

/// `teatime pca` of an array or store, with so many KiB of memory beyond [`BASE`].
fn pca(path: &Path, more: &[&str], kib: u64) -> Ran {
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v $0 && exec \"$@\"", &(BASE + kib).to_string()]);
    command.args([env!("CARGO_BIN_EXE_teatime"), "pca"]).arg(path).arg("--out").arg(scratch.join("out"));
    // One heap for all threads: each maps 64 MiB.
    command.env("TEATIME_DEVICE", "cpu").env("MALLOC_ARENA_MAX", "1").args(more);
    let ran = run(command);
    assert!(scratch.names().is_empty());
    ran
}

/// The memory that a message says is enough.
fn least(why: &str) -> u64 {
    why.split("--memory ").nth(1).expect(why).trim_end().trim_end_matches(')').parse().expect(why)
}

/// Runs with 64 MiB, and expects that to be too small.
fn too_small(path: &Path, more: &[&str]) -> String {
    let ran = pca(path, &[&["--memory", "64M", "--threads", "2", "-k", "1"], more].concat(), 64 << 10);
    assert_eq!(ran.code, 1, "{}", ran.err);
    ran.err
}

fn edit(file: &Path, change: impl Fn(&mut serde_json::Value)) {
    let mut metadata = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut metadata);
    fs::write(file, metadata.to_string()).unwrap();
}

/// A Zarr v2 array of bytes of which no chunk is there.
fn claim(path: &Path, shape: &[u64], chunks: &[u64]) -> PathBuf {
    empty_array(path, "|i1", shape, chunks);
    path.to_owned()
}

#[test]
fn columns_that_claim_much() {
    let scratch = Scratch::new();
    let path = scratch.join("names");
    store(&path, &["a", "b"], &[&[0, 1], &[1, 0]]);
    let names = path.join("sample_id");
    fs::remove_file(names.join("0")).unwrap();
    edit(&names.join(".zarray"), |metadata| {
        metadata["fill_value"] = "A".repeat(100_000).into();
        metadata["chunks"] = serde_json::json!([1 << 20]);
    });
    assert!(too_small(&path, &[]).contains("sample_id: chunk [0]: it is missing"));
    edit(&names.join(".zarray"), |metadata| metadata["chunks"] = serde_json::json!([1 << 24]));
    assert!(too_small(&path, &[]).contains("memory budget of 64.0 MiB is too small"));

    let path = scratch.join("alleles");
    store(&path, &["a", "b"], &[&[0, 1], &[1, 0]]);
    let alleles = path.join("variant_allele");
    fs::remove_file(alleles.join("0.0")).unwrap();
    edit(&alleles.join(".zarray"), |metadata| {
        metadata["shape"] = serde_json::json!([2, 65536]);
        metadata["chunks"] = serde_json::json!([256, 65536]);
    });
    assert!(too_small(&path, &["--loadings"]).contains("memory budget of 64.0 MiB is too small"));
    edit(&alleles.join(".zarray"), |metadata| metadata["chunks"] = serde_json::json!([8, 65536]));
    assert!(too_small(&path, &["--loadings"]).contains("variant_allele: chunk [0, 0]: it is missing"));
}

#[test]
fn arrays_that_claim_much() {
    let scratch = Scratch::new();
    for (name, shape, chunks) in [
        ("samples", &[2, 1 << 26][..], &[2, 1 << 26][..]),
        ("chunks", &[2, 65536, 120], &[1, 1, 1]),
        ("bands", &[1 << 34, 65536], &[16384, 1]),
    ] {
        let why = too_small(&claim(&scratch.join(name), shape, chunks), &[]);
        assert!(why.contains("memory budget of 64.0 MiB is too small"), "{why}");
        // The memory that keeps track of 16 million chunks counts.
        assert!(name != "chunks" || least(&why) > 2 << 30, "{why}");
    }
    let why = too_small(&claim(&scratch.join("more bands"), &[1 << 34, 65536], &[4096, 1]), &[]);
    assert!(why.contains("4194304 chunks"), "{why}");
}

/// The memory that the message names is enough for what decoding takes besides its results, whatever the number of threads.
#[test]
fn decoders_keep_to_the_memory() {
    let scratch = Scratch::new();
    let path = claim(&scratch.join("turned"), &[1 << 19, 1024], &[1 << 19, 64]);
    edit(&path.join(".zarray"), |metadata| {
        metadata["order"] = "F".into();
        metadata["compressor"] = serde_json::json!({ "id": "gzip", "level": 1 });
    });
    // A dosage that is none ends the run once the first rows, which are in all chunks, are decoded.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&vec![9; 32 << 20]).unwrap();
    let chunk = gzip.finish().unwrap();
    (0..16).for_each(|i| fs::write(path.join(format!("0.{i}")), &chunk).unwrap());
    let more = ["--threads", "16", "-k", "1", "--method", "exact"];
    let least = least(&pca(&path, &[&["--memory", "64M"], &more[..]].concat(), 64 << 10).err);
    let why = pca(&path, &[&["--memory", &least.to_string()], &more[..]].concat(), least >> 10).err;
    assert!(why.contains("chunk [0, 0]") && why.contains('9'), "{why}");
}

#[test]
fn no_memory_is_no_damage() {
    let scratch = Scratch::new();
    let path = claim(&scratch.join("large"), &[1 << 20, 1024], &[1 << 20, 1024]);
    fs::write(path.join("0.0"), []).unwrap();
    edit(&path.join(".zarray"), |metadata| {
        metadata["compressor"] = serde_json::json!({ "id": "zlib", "level": 1 })
    });
    let ran = pca(&path, &["--memory", "64G", "-k", "1", "--threads", "2"], 64 << 10);
    assert!(
        ran.code == 1 && ran.err.contains("chunk [0, 0]: out of memory: 1073741824 bytes"),
        "{}",
        ran.err
    );
}

/// Every command: the least that an error names is enough, and a byte less is not.
#[test]
fn the_least_that_is_named_is_enough() {
    let scratch = Scratch::new();
    let [demo, reference] = ["demo", "reference"].map(|name| scratch.join(name));
    let words = ["demo", "--variants", "1500", "--samples", "90", "-k", "3", "--out"];
    teatime(words.iter().map(OsStr::new).chain([demo.as_os_str()])).ok();
    support::pca(&demo.join("genotypes.vcz"), &reference, &["-k", "3", "--loadings"]).ok();
    let rows: Vec<f32> = (0..300 * 40).map(|i| (i * 7919 % 1013) as f32).collect();
    write_npy(scratch.join("x.npy"), &rows, [300, 40]).unwrap();
    for command in [
        "pca demo/genotypes.vcz --out NEW --method exact --loadings",
        "pca demo/genotypes.vcz --out NEW --method randomized --loadings",
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
        "pairwise x.npy --out NEW.tsv --neighbors 4",
        "blur x.npy NEW.npy --sigma 3",
        "blur x.npy NEW.zarr --sigma 3",
    ] {
        let within = |memory: u64| {
            let words = command.split(' ').map(|word| word.replace("NEW", &format!("results/{memory}")));
            let mut command = support::command(words);
            command.args(["--memory", &memory.to_string()]).current_dir(scratch.join(""));
            run(command)
        };
        fs::create_dir(scratch.join("results")).unwrap();
        let enough = least(&within(1).err);
        let less = within(enough - 1);
        assert!(less.code == 1 && least(&less.err) == enough, "{command}: {}", less.err);
        let enough = within(enough);
        assert_eq!(enough.code, 0, "{command}: {}", enough.err);
        fs::remove_dir_all(scratch.join("results")).unwrap();
    }
}
