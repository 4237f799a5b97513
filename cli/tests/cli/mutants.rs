//! Tests of files with reproducible random changes, under limits of memory and time.
//!
//! Each change gives the right result, or an error of one line that names a file. No change ends the process in another way, and no content of
//! a file acts on the terminal.

use std::fs;

use serde_json::{Value, json};
use teatime::{
    Device, Run,
    store::{ArraySpec, BoxWriter, Compression, write_npy},
};
use teatime_image::{Axis, ImageSpec, MultiscaleWriter};

use crate::support::{Ran, Scratch, copy, run};

/// The rows and columns of the array.
const SHAPE: [u64; 2] = [24, 20];
const CHUNK: [u64; 2] = [8, 10];

/// A random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        // The generator is xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Returns the bytes with one bit flipped, with the end cut off, or with other bytes appended.
    fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = self.below(bytes.len());
        match self.below(4) {
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes.truncate(at),
            _ => bytes.extend([0xff; 9]),
        }
        bytes
    }

    /// Returns the JSON with one value replaced.
    fn change_json(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut json: Value = serde_json::from_slice(bytes).unwrap();
        let mut at = &mut json;
        loop {
            let count =
                at.as_array().map(Vec::len).or_else(|| at.as_object().map(|all| all.len())).unwrap_or(0);
            if count == 0 || self.below(9) == 0 {
                break;
            }
            let number = self.below(count);
            at = match at {
                Value::Array(all) => &mut all[number],
                Value::Object(all) => all.values_mut().nth(number).unwrap(),
                _ => unreachable!("others have no values"),
            };
        }
        let forged = "\u{1b}[31m\nerror: \u{9b}2J none\u{7}";
        let values = json!([
            0, -1, 1u64 << 31, 1u64 << 40, u64::MAX, 1e300, [], {}, null, true, "/0", "../0", "/etc/../..", forged, [forged],
            "x".repeat(100_000), [0, 1u64 << 62], vec![1; 70], { "id": forged, "name": forged },
        ]);
        *at = self.of(values.as_array().unwrap());
        json.to_string().into_bytes()
    }
}

/// Runs `teatime` with these words, where `./` begins a file of the folder, in little memory and for at most ten seconds. On each of three threads,
/// products reserve addresses, not memory, for twice the processor's last cache: of caches above 64 MiB, those are not counted.
fn limited(scratch: &Scratch, words: &str) -> Ran {
    let words = words.replace("./", &format!("{}/", scratch.join("").display()));
    let shell = "cache=$(getconf LEVEL3_CACHE_SIZE || echo 0); more=$((6 * cache / 1024 - 393216)); \
                 ulimit -v $((500000 + (more > 0 ? more : 0))); exec timeout --signal=KILL 10";
    run(scratch.behind(shell, &format!("{words} --memory 64M --threads 2")))
}

/// Returns true if the command succeeded; otherwise asserts that its messages are well-formed.
#[track_caller]
fn is_right(ran: &Ran, scratch: &Scratch, case: &str) -> bool {
    let said = ran.err.trim_end_matches('\n');
    assert!(matches!(ran.code, 0 | 1), "{case}: {} {said:?}", ran.code);
    assert!(!said.chars().chain(ran.out.chars()).any(|c| c.is_control() && c != '\n'), "{case}: {said:?}");
    let folder = scratch.join("").display().to_string();
    for line in said.lines() {
        let is_note = line.ends_with("is not complete: --resume goes on with it");
        assert!(line.starts_with("error: ") || line.starts_with("warning: ") || is_note, "{case}: {said:?}");
        let names = line.contains(&folder) || line.contains(" --") || line.contains("(--");
        assert!(names && line.len() < 7000, "{case}: {line:?}");
    }
    ran.code == 0
}

fn values() -> Vec<f32> {
    (0..24 * 20u32).map(|i| (i * 37 % 101) as f32).collect()
}

/// Returns the expected result: that of the unchanged .npy file.
fn expected(scratch: &Scratch) -> Vec<u8> {
    write_npy(scratch.join("right.npy"), &values(), [24, 20]).unwrap();
    limited(scratch, "blur ./right.npy ./right.out.npy --sigma 1").ok();
    scratch.bytes("right.out.npy")
}

fn spec() -> ArraySpec {
    ArraySpec::new(teatime::StoredType::F32, &SHAPE, &CHUNK).compression(Compression::Zstd { level: 1 })
}

/// Returns the name of the metadata file of a folder.
fn metadata(scratch: &Scratch, folder: &str) -> String {
    let files = ["zarr.json", ".zarray", ".zattrs"].map(|name| format!("{folder}/{name}"));
    files.into_iter().find(|file| scratch.join(file).exists()).unwrap()
}

/// Removes the files that a command may have written.
fn remove(scratch: &Scratch, names: &[&str]) {
    names.iter().for_each(|name| drop(fs::remove_file(scratch.join(name))));
}

/// Changes headers of .npy files: dtypes, shapes, versions and lengths.
#[test]
fn npy() {
    let scratch = Scratch::new();
    let right = expected(&scratch);
    let (header, data) = (128, scratch.bytes("right.npy"));
    let mut numbers = Numbers(1);
    let extents =
        ["0", "1", "24", "20", "2147483648", "1099511627776", "18446744073709551615", "-1", "9e9", "0x7"];
    let mut succeeded = 0;
    for case in 0..70 {
        let bytes = match case % 3 {
            0 => {
                let mut start = numbers.change(&data[..header]);
                start.resize(header, b' ');
                [&start, &data[header..]].concat()
            }
            1 => {
                let shape = format!("({}, {})", numbers.of(&extents), numbers.of(&extents));
                let text = String::from_utf8_lossy(&data[10..header - 1]).replace("(24, 20)", &shape);
                let len = u32::try_from(text.len()).unwrap();
                let len = numbers.of(&[len, len, len, len + (1 << 14), 1 << 29, u32::MAX]).to_le_bytes();
                let start = [&b"\x93NUMPY"[..], &[numbers.of(&[2, 3]), 0], &len].concat();
                [&start, text.as_bytes(), &data[header..]].concat()
            }
            _ => numbers.change(&data),
        };
        scratch.write("x.npy", &bytes);
        if case % 3 == 1 {
            // The file is sparse, so it takes no disk space.
            fs::File::options().write(true).open(scratch.join("x.npy")).unwrap().set_len(1 << 33).unwrap();
        }
        let case = format!("{case}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(header)]));
        let is_same = case.contains("'<f4'") && case.contains("(24, 20)") && bytes.ends_with(&data[header..]);
        for words in [
            "blur ./x.npy ./y.npy --sigma 1",
            "pairwise ./x.npy --out ./y.npy --neighbors 1",
            "svd ./x.npy --out ./y -k 1 --left",
        ] {
            if is_right(&limited(&scratch, words), &scratch, &case) {
                succeeded += 1;
                let is_right = !words.starts_with("blur") || !is_same || scratch.bytes("y.npy") == right;
                assert!(is_right, "{case}: another result");
            }
            remove(&scratch, &["y.npy", "y.run.json", "y.neighbors.npy", "y"]);
        }
        let names = scratch.names();
        assert!(!names.iter().any(|name| name.contains("partial")), "{case}: {names:?}");
    }
    assert!(succeeded > 10, "{succeeded}");
}

/// Changes metadata of images, and partial outputs before a run resumes them: a changed chunk is computed again.
#[test]
fn images_and_resumed_outputs() {
    let scratch = Scratch::new();
    let axes = vec![Axis::space("y", "micrometer"), Axis::space("x", "micrometer")];
    let image = ImageSpec::new(axes, &[1.0, 1.0], spec());
    let writer = MultiscaleWriter::create(scratch.join("image"), image).unwrap();
    let bytes: Vec<u8> = values().into_iter().flat_map(f32::to_ne_bytes).collect();
    writer.base().unwrap().write_box_bytes(&SHAPE.map(|extent| 0..extent), &bytes).unwrap();
    writer.finish(&Device::cpu(), &Run::default()).unwrap();
    write_npy(scratch.join("x.npy"), &values(), [24, 20]).unwrap();
    let mut numbers = Numbers(3);
    let blur = |out: &str| limited(&scratch, &format!("blur ./image ./{out} --sigma 1 --resume"));
    let pairwise = |out: &str| limited(&scratch, &format!("pairwise ./x.npy --out ./{out} --resume"));
    blur("right.zarr").ok();
    pairwise("right_d.zarr").ok();
    for case in 0..30 {
        let file = metadata(&scratch, "image");
        let whole = scratch.bytes(&file);
        let changed = numbers.change_json(&whole);
        scratch.write(&file, &changed);
        let text = String::from_utf8_lossy(&changed[..changed.len().min(600)]).into_owned();
        is_right(&blur("out.zarr"), &scratch, &format!("image {case}: {text}"));
        scratch.write(&file, &whole);
        fs::remove_dir_all(scratch.join("out.zarr")).ok();
        remove(&scratch, &["out.run.json"]);
        for (out, right, chunk) in
            [("out.zarr", "right.zarr", "0/c/1/1"), ("d.zarr", "right_d.zarr", "distance/0.0")]
        {
            copy(&scratch.join(right), &scratch.join(out));
            // A killed process leaves such a file.
            let partial = format!("{out}/.zgroup.7-0.partial");
            scratch.write(&partial, "{");
            let is_chunk = case % 3 > 0;
            let array = format!("{out}/{}", chunk.split('/').next().unwrap());
            let file = if is_chunk { format!("{out}/{chunk}") } else { metadata(&scratch, &array) };
            let whole = scratch.bytes(&file);
            let changed = if is_chunk { numbers.change(&whole) } else { numbers.change_json(&whole) };
            scratch.write(&file, changed);
            let ran = if out == "d.zarr" { pairwise(out) } else { blur(out) };
            let succeeded = is_right(&ran, &scratch, &format!("{out} {case}"));
            assert!(succeeded || !is_chunk, "{out} {case}: a changed chunk is no error");
            if succeeded {
                let [found, right] = [out, right].map(|folder| scratch.bytes(&format!("{folder}/{chunk}")));
                assert!(found == right && !scratch.join(&partial).exists(), "{out} {case}: another result");
            }
            fs::remove_dir_all(scratch.join(out)).unwrap();
            remove(&scratch, &[&out.replace(".zarr", ".run.json")]);
        }
    }
}
