//! Files that were changed by chance, always in the same way, under a limit of memory and of time: each gives the right result, or an error
//! of one line that names a file. None ends the process in another way, and what it holds does not act on the terminal.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use flate2::{
    Compression as Level,
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::{Value, json};
use teatime::{
    Device, Run,
    store::{ArraySpec, ArrayWriter, BoxWriter, Compression, Folder, Shuffle, ZarrFormat, write_npy},
};
use teatime_image::{Axis, ImageSpec, MultiscaleWriter};

use crate::support::{Ran, Scratch, copy, run};

/// Rows and columns of the array, and of a chunk.
const SHAPE: [u64; 2] = [24, 20];
const CHUNK: [u64; 2] = [8, 10];

/// Chance.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Bytes of which one has another bit, of which the end lacks, or which are followed by others.
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

    /// JSON of which one value is another.
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
        *at = self.of(&[
            json!(0),
            json!(-1),
            json!(1u64 << 31),
            json!(1u64 << 40),
            json!(u64::MAX),
            json!(1e300),
            json!([]),
            json!({}),
            json!(null),
            json!(true),
            json!("/0"),
            json!("../0"),
            json!("/etc/../.."),
            json!(forged),
            json!([forged]),
            json!("x".repeat(100_000)),
            json!([0, 1u64 << 62]),
            json!(vec![1; 70]),
            json!({ "id": forged, "name": forged }),
        ]);
        json.to_string().into_bytes()
    }
}

/// `teatime` with these words, in little memory and for ten seconds at most.
fn limited(words: &[&str], paths: &[&Path]) -> Ran {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -v 500000; exec timeout --signal=KILL 10 \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_teatime"),
    ]);
    command.args(&words[..1]).args(paths).args(&words[1..]).args(["--memory", "64M", "--threads", "2"]);
    command.env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
    run(command)
}

/// True where the command succeeded; else its messages have to be as they should.
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

/// The elements of a .npy that is not changed.
fn expected(scratch: &Scratch) -> Vec<u8> {
    let [x, y] = ["right.npy", "right.out.npy"].map(|name| scratch.join(name));
    write_npy(&x, &values(), [24, 20]).unwrap();
    limited(&["blur", "--sigma", "1"], &[&x, &y]).ok();
    fs::read(y).unwrap()
}

/// Writes the array by a writer.
fn write(writer: &ArrayWriter) {
    let (values, tile_shape) = (values(), writer.tile_shape());
    let [height, width] = [tile_shape[0], tile_shape[1]];
    for tile in writer.tiles() {
        let extent = writer.extent(&tile);
        let rows = (tile[0] * height..).take(usize::try_from(extent[0]).unwrap());
        let of_row = |row: u64| {
            let start = usize::try_from(row * SHAPE[1] + tile[1] * width).unwrap();
            values[start..start + usize::try_from(extent[1]).unwrap()].to_vec()
        };
        writer.write(&tile, &rows.flat_map(of_row).collect::<Vec<_>>()).unwrap();
    }
}

fn spec() -> ArraySpec {
    ArraySpec::new(teatime::StoredType::F32, &SHAPE, &CHUNK).compression(Compression::Zstd { level: 1 })
}

/// Stores of the array, each with a checksum, and the file of a chunk.
fn stores(scratch: &Scratch) -> Vec<(PathBuf, &'static str)> {
    let blosc = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
    let ways = [
        ("zstd", spec(), "c/1/1"),
        ("v2", spec().format(ZarrFormat::V2), "1.1"),
        ("raw", spec().compression(Compression::None).checksum(true), "c/1/1"),
        ("blosc", spec().compression(blosc).checksum(true), "c/1/1"),
        ("shards", spec().shard_shape(vec![16, 20]), "c/1/0"),
    ];
    let mut stores = Vec::new();
    for (name, spec, chunk) in ways {
        let path = scratch.join(name);
        let writer = ArrayWriter::create(std::sync::Arc::new(Folder::new(&path)), "", spec).unwrap();
        write(&writer);
        writer.finish().unwrap();
        stores.push((path, chunk));
    }
    let bytes: Vec<u8> = values().iter().flat_map(|value| value.to_le_bytes()).collect();
    for name in ["gzip", "zlib"] {
        let path = scratch.join(name);
        crate::support::empty_array(&path, "<f4", &SHAPE, &SHAPE);
        let mut metadata: Value = serde_json::from_slice(&fs::read(path.join(".zarray")).unwrap()).unwrap();
        metadata["compressor"] = json!({ "id": name, "level": 1 });
        fs::write(path.join(".zarray"), metadata.to_string()).unwrap();
        let encoded = if name == "gzip" {
            let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
            encoder.write_all(&bytes).unwrap();
            encoder.finish().unwrap()
        } else {
            let mut encoder = ZlibEncoder::new(Vec::new(), Level::fast());
            encoder.write_all(&bytes).unwrap();
            encoder.finish().unwrap()
        };
        fs::write(path.join("0.0"), encoded).unwrap();
        stores.push((path, "0.0"));
    }
    stores
}

/// The file of a folder's metadata.
fn metadata(path: &Path) -> PathBuf {
    let names = ["zarr.json", ".zarray", ".zattrs"];
    names.map(|name| path.join(name)).into_iter().find(|file| file.exists()).unwrap()
}

/// Headers of .npy files: of other numbers, versions and lengths.
#[test]
fn npy() {
    let scratch = Scratch::new();
    let right = expected(&scratch);
    let (header, data) = (128, fs::read(scratch.join("right.npy")).unwrap());
    let (x, y) = (scratch.join("x.npy"), scratch.join("y.npy"));
    let mut numbers = Numbers(1);
    let extents =
        ["0", "1", "24", "20", "2147483648", "1099511627776", "18446744073709551615", "-1", "9e9", "0x7"];
    let mut succeeded = 0;
    for case in 0..70 {
        let mut bytes = data.clone();
        match case % 3 {
            0 => bytes[..header].copy_from_slice(&{
                let mut start = numbers.change(&data[..header]);
                start.resize(header, b' ');
                start
            }),
            1 => {
                let shape = format!("({}, {})", numbers.of(&extents), numbers.of(&extents));
                let text =
                    String::from_utf8(data[10..header - 1].to_vec()).unwrap().replace("(24, 20)", &shape);
                let len = u32::try_from(text.len()).unwrap();
                let len = numbers.of(&[len, len, len, len + (1 << 14), 1 << 29, u32::MAX]);
                bytes = [&b"\x93NUMPY"[..], &[numbers.of(&[2, 3]), 0], &len.to_le_bytes(), text.as_bytes()]
                    .concat();
                bytes.extend(&data[header..]);
            }
            _ => bytes = numbers.change(&data),
        }
        fs::write(&x, &bytes).unwrap();
        if case % 3 == 1 {
            // Sparse: it takes no room on the disk.
            fs::File::options().write(true).open(&x).unwrap().set_len(1 << 33).unwrap();
        }
        let case = format!("{case}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(header)]));
        let is_same = case.contains("'<f4'") && case.contains("(24, 20)") && bytes.ends_with(&data[header..]);
        for (command, with) in [("blur", "--sigma"), ("pairwise", "--neighbors")] {
            let paths: &[&Path] = if command == "blur" { &[&x, &y] } else { &[&x] };
            let out = format!("--out={}", y.display());
            let words =
                if command == "blur" { vec![command, with, "1"] } else { vec![command, &out, with, "1"] };
            let ran = limited(&words, paths);
            if is_right(&ran, &scratch, &case) {
                succeeded += 1;
                let same = command != "blur" || !is_same || fs::read(&y).unwrap() == right;
                assert!(same, "{case}: another result");
            }
            for name in ["y.npy", "y.run.json", "y.neighbors.npy"] {
                fs::remove_file(scratch.join(name)).ok();
            }
        }
        assert!(
            !scratch.names().iter().any(|name| name.contains("partial")),
            "{case}: {:?}",
            scratch.names()
        );
    }
    assert!(succeeded > 10, "{succeeded}");
}

/// Chunks of every codec that has a checksum, and metadata.
#[test]
fn zarr() {
    let scratch = Scratch::new();
    let right = expected(&scratch);
    let mut numbers = Numbers(2);
    for (store, chunk) in stores(&scratch) {
        let (file, y) = (store.join(chunk), scratch.join("y.npy"));
        for (file, is_chunk) in [(file, true), (metadata(&store), false)] {
            let whole = fs::read(&file).unwrap();
            // The first case changes nothing.
            for case in 0..15 {
                let changed = match case {
                    0 => whole.clone(),
                    _ if is_chunk => numbers.change(&whole),
                    _ => numbers.change_json(&whole),
                };
                fs::write(&file, &changed).unwrap();
                let ran = limited(&["blur", "--sigma", "1", "--missing-chunk", "error"], &[&store, &y]);
                let text = String::from_utf8_lossy(&changed[..changed.len().min(600)]);
                let case = format!("{} {case}: {}", file.display(), if is_chunk { "".into() } else { text });
                let succeeded = is_right(&ran, &scratch, &case);
                assert!(succeeded || changed != whole, "{case}: {}", ran.err);
                if succeeded && (is_chunk || changed == whole) {
                    assert!(fs::read(&y).unwrap() == right, "{case}: another result");
                }
                for name in ["y.npy", "y.run.json"] {
                    fs::remove_file(scratch.join(name)).ok();
                }
            }
            fs::write(&file, &whole).unwrap();
        }
    }
}

/// Metadata of images, and outputs that a run goes on with: a chunk that was changed is made again.
#[test]
fn images_and_resumed_outputs() {
    let scratch = Scratch::new();
    let axes = vec![Axis::space("y", "micrometer"), Axis::space("x", "micrometer")];
    let image = scratch.join("image.zarr");
    let writer = MultiscaleWriter::create(&image, ImageSpec::new(axes, &[1.0, 1.0], spec())).unwrap();
    write(&writer.base().unwrap());
    writer.finish(&Device::cpu(), &Run::default()).unwrap();
    let mut numbers = Numbers(3);
    let words = ["blur", "--sigma", "1", "--resume"];
    let [right, out] = ["right.zarr", "out.zarr"].map(|name| scratch.join(name));
    limited(&words, &[&image, &right]).ok();
    let [x, d, right_d] = ["x.npy", "d.zarr", "right_d.zarr"].map(|name| scratch.join(name));
    write_npy(&x, &values(), [24, 20]).unwrap();
    let pairwise =
        |out: &Path| limited(&["pairwise", &format!("--out={}", out.display()), "--resume"], &[&x]);
    pairwise(&right_d).ok();
    for case in 0..30 {
        let file = metadata(&image);
        let whole = fs::read(&file).unwrap();
        let changed = numbers.change_json(&whole);
        fs::write(&file, &changed).unwrap();
        let ran = limited(&words, &[&image, &out]);
        let text = String::from_utf8_lossy(&changed[..changed.len().min(600)]).into_owned();
        is_right(&ran, &scratch, &format!("image {case}: {text}"));
        fs::write(&file, &whole).unwrap();
        fs::remove_dir_all(&out).ok();
        fs::remove_file(scratch.join("out.run.json")).ok();

        for (out, right, chunk) in [(&out, &right, "0/c/1/1"), (&d, &right_d, "distance/0.0")] {
            copy(right, out);
            // As of a process that was killed.
            let partial = out.join(".zgroup.7-0.partial");
            fs::write(&partial, "{").unwrap();
            let file = out.join(if case % 3 > 0 { chunk } else { chunk.split('/').next().unwrap() });
            let file = if case % 3 > 0 { file } else { metadata(&file) };
            let whole = fs::read(&file).unwrap();
            let changed = if case % 3 > 0 { numbers.change(&whole) } else { numbers.change_json(&whole) };
            fs::write(&file, changed).unwrap();
            let ran = if out == &d { pairwise(out) } else { limited(&words, &[&image, out]) };
            let succeeded = is_right(&ran, &scratch, &format!("{} {case}", out.display()));
            assert!(succeeded || case % 3 == 0, "{} {case}: a changed chunk is no error", out.display());
            if succeeded {
                let [found, right] = [&**out, &**right].map(|folder| fs::read(folder.join(chunk)).unwrap());
                assert!(found == right && !partial.exists(), "{} {case}: another result", out.display());
            }
            fs::remove_dir_all(out).unwrap();
            fs::remove_file(out.with_extension("run.json")).ok();
        }
    }
}
