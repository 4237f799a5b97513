//! Running the binary, and stores to run it on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use teatime_genotype::{Variant, VcfZarrHeader, VcfZarrWriter};
use tempfile::TempDir;

/// A folder of a test's own.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary folder should be writable"))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Names of what is in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder should be there");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("the folder should be readable").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// A store or table that other tools made.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../genotype/tests/fixtures").join(name);
    assert!(path.exists(), "{} is missing; it belongs to the repository", path.display());
    path
}

/// The exit code and the output of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output should be UTF-8");
        let ran = Self {
            code: output.status.code().expect("the command should not die of a signal"),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran
    }
}

impl Ran {
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

/// The binary with words and paths as arguments, on the cpu device unless they say otherwise.
pub(crate) fn command<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(args: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_teatime"));
    command.args(args).env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
    command
}

pub(crate) fn run(mut command: Command) -> Ran {
    command.output().expect("the binary should start").into()
}

pub(crate) fn teatime<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(args: I) -> Ran {
    run(command(args))
}

/// `teatime NAME STORE --out OUT` and words.
pub(crate) fn on_store(name: &str, store: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = command([name.as_ref(), store.as_os_str(), "--out".as_ref(), out.as_os_str()]);
    command.args(more);
    command
}

pub(crate) fn pca(store: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("pca", store, out, more))
}

/// Runs a command on the store and expects an error that has all the words, and no output.
pub(crate) fn refused(name: &str, store: &Path, more: &[&str], code: i32, words: &[&str]) {
    let scratch = Scratch::new();
    let ran = run(on_store(name, store, &scratch.join("new/out"), more));
    assert_eq!(ran.code, code, "{more:?}: {}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    for word in words {
        assert!(ran.err.contains(word), "`{word}` is not in: {}", ran.err);
    }
    assert!(ran.out.is_empty(), "{}", ran.out);
    assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
}

/// Rows of a tab-separated table, without its first line.
pub(crate) fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).expect("the table should be there");
    text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

pub(crate) fn number(text: &str) -> f64 {
    text.parse().expect("the field should be a number")
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("the text should be JSON")
}

/// Copies a folder with all it holds.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the copy should be new");
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).expect("the file should be copied");
        }
    }
}

/// A VCF-Zarr store of diploids with the given dosages, -1 missing.
pub(crate) fn store(path: &Path, samples: &[&str], dosages: &[&[i8]]) {
    let names = samples.iter().map(ToString::to_string).collect();
    let header = VcfZarrHeader::new(names, vec!["1".into()], dosages.len() as u64);
    let variant = |i: usize| Variant {
        contig: Arc::from("1"),
        position: 100 + i as u64,
        id: format!("v{i}"),
        reference: "A".into(),
        alternate: "C".into(),
    };
    let variants: Vec<_> = (0..dosages.len()).map(variant).collect();
    write_store(path, header, &calls(dosages.iter().copied().flatten()), &variants);
}

/// The alleles of diploids with these dosages, -1 missing.
pub(crate) fn calls<'a>(dosages: impl Iterator<Item = &'a i8>) -> Vec<i8> {
    let alleles = |dosage: &i8| match dosage {
        -1 => [-1, -1],
        dosage => [dosage / 2, dosage - dosage / 2],
    };
    dosages.flat_map(alleles).collect()
}

/// A VCF-Zarr store of these variants, and the alleles of their calls.
pub(crate) fn write_store(path: &Path, header: VcfZarrHeader, calls: &[i8], variants: &[Variant]) {
    let writer = VcfZarrWriter::create(path, header).expect("the store should be new");
    let width = calls.len() / variants.len();
    for chunk in 0..writer.n_chunks() {
        let range = writer.chunk_range(chunk);
        let [start, end] = [range.start, range.end].map(|row| usize::try_from(row).unwrap());
        let written = writer.write_chunk(chunk, &calls[start * width..end * width], &variants[start..end]);
        written.expect("the chunk should be written");
    }
    writer.finish().expect("the store should be finished");
}

/// A Zarr v2 array in one uncompressed chunk.
pub(crate) fn plain_array(path: &Path, dtype: &str, shape: &[u64], bytes: &[u8]) {
    let chunks: Vec<u64> = shape.iter().map(|extent| (*extent).max(1)).collect();
    empty_array(path, dtype, shape, &chunks);
    let index = vec!["0"; shape.len()].join(".");
    fs::write(path.join(index), bytes).expect("the chunk should be written");
}

/// A Zarr v2 array of uncompressed chunks, of which none is there.
pub(crate) fn empty_array(path: &Path, dtype: &str, shape: &[u64], chunks: &[u64]) {
    fs::create_dir(path).expect("the array should be new");
    let metadata = serde_json::json!({
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": 0,
        "order": "C", "filters": null, "compressor": null,
    });
    fs::write(path.join(".zarray"), metadata.to_string()).expect("the metadata should be written");
}

/// Checks what every record says of how its run came about; the budgets that were given, of the host and the device.
pub(crate) fn provenance(record: &serde_json::Value, command: &str, given: [Option<u64>; 2]) {
    let words: Vec<_> =
        record["command_line"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert!(Path::new(words[0]).file_stem().is_some_and(|name| name == "teatime"), "{words:?}");
    assert!(words[1] == command && words.contains(&"--out"), "{words:?}");
    let started = record["started"].as_str().unwrap();
    let shape: String = started.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z", "{started}");
    assert!(started > "2026-", "{started}");
    assert!(record["threads"].as_u64().unwrap() > 0);
    let [host, device] = ["host", "device"].map(|name| &record["budgets"][name]);
    let cpu = record["device"]["name"] == "cpu";
    assert_eq!(device.is_null(), cpu, "{device}");
    for (budget, given) in [host, device].into_iter().zip(given).take(if cpu { 1 } else { 2 }) {
        assert_eq!(budget["given"], given.is_some(), "{budget}");
        let bytes = budget["bytes"].as_u64().unwrap();
        assert!(given.map_or(bytes > 1 << 20, |given| given == bytes), "{budget}");
    }
}

/// The entries of a square numpy file of f64, found by its own header.
pub(crate) fn npy(path: &Path) -> Vec<f64> {
    let data = usize::try_from(fs::metadata(path).unwrap().len()).unwrap() - 128;
    npy_of(path, [(data / 8).isqrt(); 2])
}

/// The entries of a numpy file of f64 of that shape.
pub(crate) fn npy_of(path: &Path, [rows, columns]: [usize; 2]) -> Vec<f64> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(data.is_multiple_of(64));
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    assert!(header.contains("'descr': '<f8'") && header.contains("'fortran_order': False"), "{header}");
    let values: Vec<f64> =
        bytes[data..].chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect();
    let shape = format!("'shape': ({rows}, {columns})");
    assert!(header.contains(&shape) && rows * columns == values.len(), "{header}");
    values
}
