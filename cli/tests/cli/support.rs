//! Helpers to run the binary, and stores to run it on.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};
#[cfg(unix)]
use std::{
    process::Child,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;
use teatime::{MissingChunk, openings, store::ZarrArray};
use teatime_genotype::{Variant, VcfZarrHeader, VcfZarrWriter};
use tempfile::TempDir;

/// The folder of one test, in which its commands run.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary folder should be writable"))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the sorted names of the entries of the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.0.path())
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).expect("the file should be text")
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        json(&self.text(name))
    }

    /// Returns the rows of a tab-separated table, without its first line.
    pub(crate) fn rows(&self, name: &str) -> Vec<Vec<String>> {
        self.text(name).lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.join(name), bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Copies the fixture's files `name`.ENDING to files `to`.ENDING.
    pub(crate) fn copies(&self, name: &str, to: &str, endings: &[&str]) {
        for ending in endings {
            self.write(&format!("{to}.{ending}"), fs::read(fixture(&format!("{name}.{ending}"))).unwrap());
        }
    }

    /// Returns a `teatime` command with these words, where `@NAME` is the path of a fixture; it uses the cpu device unless they name another.
    pub(crate) fn command(&self, words: &str) -> Command {
        self.behind("", words)
    }

    /// Returns the command after a prefix in shell language, such as `ulimit -f 1; exec`.
    pub(crate) fn behind(&self, shell: &str, words: &str) -> Command {
        let teatime = env!("CARGO_BIN_EXE_teatime");
        let mut command = Command::new(if shell.is_empty() { teatime } else { "sh" });
        if !shell.is_empty() {
            command.args(["-c", &format!("{shell} \"$0\" \"$@\""), teatime]);
        }
        let fixed = |word: &str| match word.strip_prefix('@') {
            Some(name) => fixture(name).into_os_string(),
            None => OsString::from(word),
        };
        command.args(words.split_whitespace().map(fixed)).current_dir(self.0.path());
        command.env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &str) -> Ran {
        run(self.command(words))
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, words: &str) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words}: {}", ran.err);
        ran
    }

    /// Runs a command and returns the record that it prints.
    #[track_caller]
    pub(crate) fn record(&self, words: &str) -> Value {
        json(&self.ok(&format!("{words} --json")).out)
    }

    /// Runs a command that must end with this code, an error that contains all of `said`, and no new files.
    #[track_caller]
    pub(crate) fn refused(&self, words: &str, code: i32, said: &[&str]) {
        let before = self.names();
        let ran = self.run(words);
        assert_eq!(ran.code, code, "{words}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.out.is_empty(), "{words}: {}{}", ran.out, ran.err);
        assert_has(&ran.err, said);
        assert_eq!(self.names(), before, "{words}");
    }

    /// Returns the results in a folder by their names, except the record.
    pub(crate) fn results(&self, name: &str) -> BTreeMap<String, Arc<[u8]>> {
        let mut all = files(&self.join(name));
        all.retain(|name, _| !name.ends_with("run.json"));
        all
    }

    /// Opens an array of a Zarr store.
    pub(crate) fn array(&self, store: &str, name: &str) -> ZarrArray {
        ZarrArray::open(self.join(store), name, MissingChunk::Error).expect("the array should open")
    }

    /// Starts a command whose results are in the folder `out`, kills it once the first of `parts` is there, and so on for all of them.
    #[cfg(unix)]
    pub(crate) fn killed(&self, words: &str, out: &str, parts: &[&str]) {
        let at = |part: &&str| {
            let begun = || self.join(out).join(part).exists();
            Busy::start(self.command(words), begun).is_some_and(Busy::kill)
        };
        let stopped = (0..9).any(|_| {
            fs::remove_dir_all(self.join(out)).ok();
            parts.iter().all(at)
        });
        assert!(stopped, "it ends before it is killed");
    }

    /// Returns the minimum memory that the command's error names.
    #[track_caller]
    pub(crate) fn least(&self, words: &str) -> u64 {
        least(&self.run(words).err)
    }
}

/// Returns the minimum memory that a message names.
#[track_caller]
pub(crate) fn least(why: &str) -> u64 {
    let least = why.split_once("--memory ").and_then(|(_, least)| least.split_once(')'));
    least.unwrap_or_else(|| panic!("{why}")).0.parse().unwrap()
}

#[track_caller]
pub(crate) fn assert_has(text: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is not in: {text}"));
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

/// Returns the files of a folder by their relative paths.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Arc<[u8]>> {
    assert!(folder.is_dir(), "{} should be there", folder.display());
    openings::files(folder)
}

/// Returns the path of a store, file or image that other tools made.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let paths =
        ["genotype", ".", "image"].map(|package| root.join(package).join("tests/fixtures").join(name));
    let path = paths.into_iter().find(|path| path.exists());
    path.unwrap_or_else(|| panic!("{name} is missing; it belongs to the repository"))
}

/// The exit code, the output and the messages of a command.
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
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

pub(crate) fn run(mut command: Command) -> Ran {
    command.output().expect("the binary should start").into()
}

/// A running command, which is killed if this is dropped before the command ends.
#[cfg(unix)]
pub(crate) struct Busy(Child);

#[cfg(unix)]
impl Busy {
    /// Starts the command and waits until it has `begun`. Returns None if the command ended before that.
    pub(crate) fn start(mut command: Command, begun: impl Fn() -> bool) -> Option<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut busy = Self(child.expect("the binary should start"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !begun() && busy.code().is_none() {
            assert!(Instant::now() < deadline, "it does not begin");
            sleep(Duration::from_millis(1));
        }
        busy.code().is_none().then_some(busy)
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.0.try_wait().expect("a child can be waited for").map(|status| status.code().unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(kill.expect("there should be a kill command").success());
    }

    /// Kills the command; returns true if the kill ended it, false if it had ended by itself.
    pub(crate) fn kill(mut self) -> bool {
        self.0.kill().ok();
        self.0.wait().unwrap().code().is_none()
    }

    /// Waits for the end of the command; returns the exit code and the messages.
    pub(crate) fn end(mut self) -> (i32, String) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.code().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            sleep(Duration::from_millis(10));
        }
        let mut err = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.code().unwrap(), err)
    }
}

#[cfg(unix)]
impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().unwrap();
    }
}

/// Returns the text of a file that gzip compressed.
pub(crate) fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let mut file = flate2::read::MultiGzDecoder::new(fs::File::open(path).unwrap());
    file.read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn number(text: &str) -> f64 {
    text.parse().expect("the field should be a number")
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("the text should be JSON")
}

/// Copies a folder with the files in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(!to.exists(), "{} should not be there", to.display());
    for (name, bytes) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).expect("the folder should be made");
        fs::write(path, bytes).expect("the file should be copied");
    }
}

/// A variant, and the dosages of its samples: -1 for a missing call.
pub(crate) struct Site {
    pub(crate) variant: Variant,
    pub(crate) dosages: Vec<i8>,
}

pub(crate) fn site(contig: &str, position: u64, alleles: [&str; 2], dosages: &[i8]) -> Site {
    let ([reference, alternate], id) = (alleles.map(str::to_owned), format!("v{position}"));
    let variant = Variant { contig: contig.into(), position, id, reference, alternate };
    Site { variant, dosages: dosages.to_vec() }
}

/// Returns a dosage that looks random, or -1 for a missing call.
pub(crate) fn dosage(row: u64, sample: u64) -> i8 {
    let word = (row * 17 + sample + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if word.is_multiple_of(61) { -1 } else { i8::try_from(word % (2 + row % 2)).unwrap() }
}

/// Writes a VCF-Zarr store of diploids with the given dosages.
pub(crate) fn store(path: &Path, samples: &[&str], dosages: &[&[i8]]) {
    let sites = dosages.iter().zip(100..).map(|(dosages, at)| site("1", at, ["A", "C"], dosages));
    write_store(path, samples.iter().map(ToString::to_string).collect(), &sites.collect::<Vec<_>>());
}

/// Writes a VCF-Zarr store of diploids, whose sample names are `prefix` and an index.
pub(crate) fn store_of(path: &Path, prefix: &str, sites: &[Site]) {
    let samples = (0..sites[0].dosages.len()).map(|i| format!("{prefix}{i}"));
    write_store(path, samples.collect(), sites);
}

/// Writes a VCF-Zarr store of diploids with these names.
pub(crate) fn write_store(path: &Path, samples: Vec<String>, sites: &[Site]) {
    fs::remove_dir_all(path).ok();
    let mut contigs = Vec::<String>::new();
    let mut header = VcfZarrHeader::new(samples, Vec::new(), sites.len() as u64);
    for Site { variant: Variant { contig, alternate, .. }, .. } in sites {
        header.alleles = header.alleles.max(2 + alternate.matches(',').count());
        if !contigs.iter().any(|known| **known == **contig) {
            contigs.push(contig.to_string());
        }
    }
    header.contigs = contigs;
    let writer = VcfZarrWriter::create(path, header).expect("the store should be new");
    for chunk in 0..writer.n_chunks() {
        let range = writer.chunk_range(chunk);
        let sites = &sites[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
        let alleles = |dosage: &i8| if *dosage < 0 { [-1; 2] } else { [dosage / 2, dosage - dosage / 2] };
        let calls: Vec<i8> = sites.iter().flat_map(|site| &site.dosages).flat_map(alleles).collect();
        let variants: Vec<_> = sites.iter().map(|site| site.variant.clone()).collect();
        writer.write_chunk(chunk, &calls, &variants).expect("the chunk should be written");
    }
    writer.finish().expect("the store should be finished");
}

/// Writes a Zarr v2 array in one uncompressed chunk.
pub(crate) fn plain_array(path: &Path, dtype: &str, shape: &[u64], bytes: &[u8]) {
    let chunks: Vec<u64> = shape.iter().map(|extent| (*extent).max(1)).collect();
    empty_array(path, dtype, shape, &chunks);
    let index = vec!["0"; shape.len()].join(".");
    fs::write(path.join(index), bytes).expect("the chunk should be written");
}

/// Writes a Zarr v2 array of uncompressed chunks, all of which are missing.
pub(crate) fn empty_array(path: &Path, dtype: &str, shape: &[u64], chunks: &[u64]) {
    fs::create_dir(path).expect("the array should be new");
    let metadata = serde_json::json!({
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": 0,
        "order": "C", "filters": null, "compressor": null,
    });
    fs::write(path.join(".zarray"), metadata.to_string()).expect("the metadata should be written");
}

/// Checks what every record says about its run, and the memory budgets that were given for the host and the device.
pub(crate) fn provenance(record: &Value, command: &str, given: [Option<u64>; 2]) {
    let words = record["command_line"].as_array().unwrap();
    let words: Vec<_> = words.iter().map(|word| word.as_str().unwrap()).collect();
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

/// Returns the elements of a numpy file of f64 with that shape.
pub(crate) fn npy(path: &Path, [rows, columns]: [usize; 2]) -> Vec<f64> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    assert!(data.is_multiple_of(64), "{header}");
    assert_has(header, &["'descr': '<f8'", &format!("'shape': ({rows}, {columns})")]);
    bytes[data..].as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}
