//! Tests of arrays that are written at once, or continued after a process was killed.

use std::{io, process::Command, sync::atomic::AtomicU64};

use super::*;
use crate::{
    StoredType, assert_err,
    openings::{Puts, assert_refused, elements, files},
    store::{ArraySpec, ArrayWriter, Attributes, Compression, Shuffle, WritableStorage, ZarrFormat, is_free},
};

const BLOSC: Compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
const BITS: Compression = Compression::Blosc { level: 5, shuffle: Shuffle::Bits };
const ZSTD: Compression = Compression::Zstd { level: 3 };

/// The array's shape, 70 x 50, which tiles of 32 x 24 do not divide on either axis.
const SHAPE: [u64; 2] = [70, 50];

fn spec(dtype: StoredType) -> ArraySpec {
    ArraySpec::new(dtype, &SHAPE, &[32, 24])
}

/// Returns ways to store an array, and their names.
fn ways() -> Vec<(String, ArraySpec)> {
    let mut ways = Vec::new();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        for (name, compression) in
            [("raw", Compression::None), ("zstd", ZSTD), ("blosc", BLOSC), ("bits", BITS)]
        {
            let spec = spec(StoredType::F32).format(format).compression(compression).axes(&["y", "x"]);
            let mut push = |more: &str, spec| ways.push((format!("{format:?}_{name}{more}"), spec));
            push("", spec.clone());
            if format == ZarrFormat::V3 {
                let sharded =
                    ArraySpec { chunk_shape: vec![8, 12], ..spec.clone().shard_shape(vec![32, 24]) };
                push("_crc", spec.checksum(true));
                push("_shard", sharded.clone());
                push("_shard_crc", sharded.checksum(true));
            }
        }
    }
    ways
}

fn value(row: u64, column: u64) -> f32 {
    (1000 * row + column) as f32
}

fn tile(writer: &ArrayWriter, index: &[u64]) -> Vec<f32> {
    let extent = writer.extent(index);
    let rows = 32 * index[0]..32 * index[0] + extent[0];
    rows.flat_map(|row| (0..extent[1]).map(move |column| value(row, 24 * index[1] + column))).collect()
}

/// Writes the tiles that are left, and finishes. Returns them.
fn fill(writer: ArrayWriter) -> Vec<Vec<u64>> {
    let left: Vec<_> = writer.left().collect();
    left.iter().for_each(|index| writer.write(index, &tile(&writer, index)).unwrap());
    writer.finish().unwrap();
    left
}

fn folder(scratch: &Scratch) -> Arc<dyn WritableStorage> {
    Arc::new(Folder::new(scratch.path()))
}

/// Reads the value of each element.
fn read(scratch: &Scratch, name: &str) -> Vec<f32> {
    let array = ZarrArray::open(scratch.path(), name, MissingChunk::Fill).unwrap();
    let tile = array.shard_shape().unwrap_or_else(|| array.chunk_shape().to_vec());
    assert_eq!((array.shape(), &*tile), (&SHAPE[..], &[32, 24][..]));
    elements(Arc::new(array))
}

fn expected() -> Vec<f32> {
    (0..70).flat_map(|row| (0..50).map(move |column| value(row, column))).collect()
}

#[test]
fn what_is_written_from_several_threads_is_read() {
    let scratch = Scratch::new();
    for (name, spec) in ways() {
        let writer = ArrayWriter::create(folder(&scratch), &name, spec).unwrap();
        assert_eq!(writer.tiles().count(), 9);
        std::thread::scope(|scope| {
            for index in writer.tiles().collect::<Vec<_>>().into_iter().rev() {
                let writer = &writer;
                scope.spawn(move || writer.write(&index, &tile(writer, &index)).unwrap());
            }
        });
        writer.finish().unwrap();
        assert_eq!(read(&scratch, &name), expected(), "{name}");
        let array = ZarrArray::open(scratch.path(), &name, MissingChunk::Error).unwrap();
        assert_eq!(array.dimension_names(), ["y", "x"]);
    }
}

fn other_types(scratch: &Scratch) {
    macro_rules! write {
        ($($type:ty)*) => {$({
            let dtype = <$type as crate::store::Storable>::STORED;
            for (format, compression) in [(ZarrFormat::V2, BLOSC), (ZarrFormat::V3, ZSTD)] {
                let spec = ArraySpec::new(dtype, &[5], &[3]).format(format).compression(compression);
                let name = format!("{format:?}_{}", stringify!($type).replace("half::", ""));
                let writer = ArrayWriter::create(folder(scratch), &name, spec).unwrap();
                let values = [0u8, 1, 2, 3, 120].map(<$type>::from);
                writer.write(&[0], &values[..3]).unwrap();
                writer.write(&[1], &values[3..]).unwrap();
                writer.finish().unwrap();
                let array = ZarrArray::open(scratch.path(), &name, MissingChunk::Error).unwrap();
                assert_eq!(array.dtype(), dtype);
                let bytes = [0, 1].map(|i| array.read_chunk(&[i]).unwrap().bytes).concat();
                assert_eq!(bytemuck::pod_collect_to_vec::<u8, $type>(&bytes)[..5], values, "{name}");
            }
        })*};
    }
    write!(u8 i16 u16 i32 u32 i64 u64 half::f16 f32 f64);
}

#[test]
fn every_type() {
    other_types(&Scratch::new());
}

/// Unwritten elements of floating-point arrays are NaN.
#[test]
fn holes_show() {
    let scratch = Scratch::new();
    for (name, spec) in ways() {
        let writer = ArrayWriter::create(folder(&scratch), &name, spec).unwrap();
        writer.write(&[0, 1], &tile(&writer, &[0, 1])).unwrap();
        let left: Vec<_> = writer.left().collect();
        assert!(left.len() == 8 && !left.contains(&vec![0, 1]));
        let Err(Error::Chunk { index, why, .. }) = writer.finish() else { panic!("{name}") };
        assert_eq!((&*index, &*why), (&[0, 0][..], "was not written"));
        let read = read(&scratch, &name);
        let written = |i: usize| (24..48).contains(&(i % 50)) && i / 50 < 32;
        assert!(read.iter().enumerate().all(|(i, value)| value.is_nan() != written(i)), "{name}");
    }
}

#[test]
fn strings() {
    let scratch = Scratch::new();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let spec = ArraySpec::new(None, &[5], &[3]).format(format).compression(BLOSC);
        let name = format!("{format:?}");
        let writer = ArrayWriter::create(folder(&scratch), &name, spec).unwrap();
        writer.write_text(&[0], ["a", "", "ä"]).unwrap();
        for refused in [&["b"][..], &["b"; 3]] {
            assert!(matches!(writer.write_text(&[1], refused.iter().copied()), Err(Error::Argument { .. })));
        }
        assert!(matches!(writer.write(&[1], &[1.0, 2.0]), Err(Error::Argument { .. })));
        writer.write_text(&[1], ["b", "cc"]).unwrap();
        writer.finish().unwrap();
        let array = scratch.open(&name).unwrap();
        let chunk = array.fetch(&[1], None).and_then(|fetched| array.decode(fetched, false));
        assert_eq!(chunk.unwrap().unwrap().0.bytes, *b"\x03\0\0\0\x01\0\0\0b\x02\0\0\0cc\0\0\0\0");
    }
}

#[test]
fn arguments_are_checked() {
    let scratch = Scratch::new();
    let create = |change: &dyn Fn(&mut ArraySpec)| {
        let mut spec = spec(StoredType::F32);
        change(&mut spec);
        ArrayWriter::create(folder(&scratch), "a", spec)
    };
    let refused = |why: &str, change: &dyn Fn(&mut ArraySpec)| {
        let error = assert_err!(create(change), Error::Argument { name: "spec", .. });
        assert!(error.to_string().contains(why), "{error}");
        assert!(!scratch.path().join("a").exists());
    };
    refused("neither shards nor checksums", &|spec| (spec.format, spec.checksum) = (ZarrFormat::V2, true));
    refused("neither shards nor checksums", &|spec| {
        (spec.format, spec.shard_shape) = (ZarrFormat::V2, Some(vec![32, 24]));
    });
    refused("do not divide", &|spec| spec.shard_shape = Some(vec![48, 24]));
    refused("1 names for 2 axes", &|spec| spec.axes = vec!["x".into()]);
    refused("level 10 is above 9", &|spec| {
        spec.compression = Compression::Blosc { level: 10, shuffle: Shuffle::Bytes };
    });
    refused("level 23", &|spec| spec.compression = Compression::Zstd { level: 23 });
    refused("blosc takes at most", &|spec| {
        (spec.chunk_shape, spec.compression) = (vec![1 << 16, 1 << 13], BLOSC);
    });
    refused("do not fit its shape", &|spec| spec.chunk_shape = vec![32, 0]);
    refused("do not fit its shape", &|spec| spec.chunk_shape = vec![32]);
    refused("tiles are more than", &|spec| (spec.shape, spec.chunk_shape) = (vec![1 << 20; 2], vec![1, 1]));
    refused("scale_factor", &|spec| {
        spec.attributes.insert("scale_factor".into(), 2.into());
    });
    refused("fill", &|spec| spec.fill = "x".into());

    let writer = create(&|_| {}).unwrap();
    let whole = vec![0.0f32; 32 * 24];
    for index in [&[3, 0][..], &[0, 3], &[0], &[0, 0, 0]] {
        assert!(matches!(writer.write(index, &whole), Err(Error::Argument { name: "index", .. })));
    }
    assert!(matches!(writer.write(&[2, 2], &whole), Err(Error::Argument { name: "elements", .. })));
    assert!(matches!(writer.write(&[0, 0], &[0i32; 768]), Err(Error::Argument { name: "elements", .. })));
    assert!(matches!(writer.write_text(&[0, 0], [""]), Err(Error::Argument { name: "strings", .. })));
    let again = create(&|_| {}).unwrap_err();
    assert!(matches!(&again, Error::Store { why, .. } if &**why == "exists already"), "{again}");
    let resumed = ArrayWriter::resume(folder(&scratch), "a", spec(StoredType::F32));
    assert_err!(resumed, Error::Argument { name: "spec", .. });
    // A file exists where a folder is needed.
    scratch.put("file", "");
    let inside = ArrayWriter::create(folder(&scratch), "file/a", spec(StoredType::F32));
    assert!(matches!(inside, Err(Error::Io { .. })), "{inside:?}");
}

fn job(job: &str) -> ArraySpec {
    spec(StoredType::F32).compression(ZSTD).checksum(true).job(job.to_owned())
}

/// Returns the status and the hash of the job.
fn said(scratch: &Scratch, name: &str) -> (String, String) {
    let said = read_attributes(&Folder::new(scratch.path()), name).unwrap();
    let said = |key: &str| said["teatime"][key].as_str().unwrap().to_owned();
    (said("status"), said("job"))
}

#[test]
fn another_job_is_refused_by_name() {
    let scratch = Scratch::new();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let of = |words: &str| job(words).format(format).checksum(false);
        let name = format!("{format:?}");
        let first = ArrayWriter::resume(folder(&scratch), &name, of("one")).unwrap();
        first.write(&[0, 0], &tile(&first, &[0, 0])).unwrap();
        let (status, hash) = said(&scratch, &name);
        assert_eq!((status.as_str(), hash.len()), ("incomplete", 64));
        let unit = Attributes::from_iter([("unit".into(), "m".into())]);
        let wider = ArraySpec { chunk_shape: vec![32, 25], ..of("one") };
        for other in [of("two"), wider, of("one").fill(0), of("one").attributes(unit)] {
            let error = ArrayWriter::resume(folder(&scratch), &name, other).unwrap_err();
            let Error::Store { path, why, .. } = &error else { panic!("{error}") };
            assert!(path.ends_with(&name) && why.contains(&hash) && why.contains("this one is"), "{error}");
        }
        let again = ArrayWriter::resume(folder(&scratch), &name, of("one")).unwrap();
        assert_eq!(again.left().count(), 8);
    }
    scratch.put("group/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    ArrayWriter::create(folder(&scratch), "plain", spec(StoredType::F32)).unwrap();
    for (name, why) in [("group", "is a group"), ("plain", "was not written by a job")] {
        assert_refused(ArrayWriter::resume(folder(&scratch), name, job("one")), &[why]);
    }
}

/// A tile that is empty, truncated or changed does not count as written.
#[test]
fn damaged_tiles_are_left() {
    let scratch = Scratch::new();
    for (name, mut spec) in ways() {
        spec.job = Some("job".into());
        let has_checksum = spec.checksum || spec.compression == ZSTD;
        let write = || fill(ArrayWriter::resume(folder(&scratch), &name, spec.clone()).unwrap());
        write();
        let file =
            scratch.path().join(&name).join(if spec.format == ZarrFormat::V2 { "1.2" } else { "c/1/2" });
        let whole = fs::read(&file).unwrap();
        for at in [0, 1, whole.len() / 2, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            for (damaged, is_known) in [(&whole[..at], true), (&changed, has_checksum)] {
                fs::write(&file, damaged).unwrap();
                let left = write();
                assert!(!is_known || left == [[1, 2]] && fs::read(&file).unwrap() == whole, "{name} {at}");
                fs::write(&file, &whole).unwrap();
            }
        }
        assert!(write().is_empty(), "{name}");
        if spec.shard_shape.is_some() {
            // The index, which has its checksum, lacks the first of eight chunks.
            let index = whole.len() - 4 - 16 * 8;
            let lacking = crc([&[0xff; 16], &whole[index + 16..whole.len() - 4]].concat());
            fs::write(&file, [&whole[..index], &lacking].concat()).unwrap();
            assert_eq!(write(), [[1, 2]], "{name}");
        }
    }
    // Truncated strings are detected even without a checksum.
    let texts = ArraySpec::new(None, &[3], &[3]).job("job".to_owned());
    let strings = || ArrayWriter::resume(folder(&scratch), "strings", texts.clone()).unwrap();
    strings().write_text(&[0], ["a", "bc", ""]).unwrap();
    assert!(strings().is_written(&[0]).unwrap());
    let file = scratch.path().join("strings/c/0");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(!strings().is_written(&[0]).unwrap());
}

/// A process that is killed when it starts an array of version 2 leaves only the attributes; another process continues from there.
#[test]
fn attributes_alone_are_taken_up() {
    let scratch = Scratch::new();
    let begin = |job: &str| {
        let spec = spec(StoredType::F32).job(job.to_owned()).format(ZarrFormat::V2);
        ArrayWriter::resume(folder(&scratch), "a", spec).map(|writer| writer.left().count())
    };
    for job in ["one", "one", "another"] {
        assert_eq!(begin(job).unwrap(), 9, "{job}");
        fs::remove_file(scratch.path().join("a/.zarray")).unwrap();
    }
    scratch.put("a/.zattrs", "{}");
    assert_refused(begin("one"), &["is a group, not an array"]);
}

/// An array may be started or continued only in a folder that holds this array, or only leftovers of a killed process.
#[test]
fn other_folders_are_refused() {
    let scratch = Scratch::new();
    let free = |store: &str, name: &str| {
        is_free(scratch.path().join(store), name).map_err(|error| error.to_string())
    };
    for (path, store, name) in [("plain", "plain", ""), ("store/a", "store", "a")] {
        ArrayWriter::create(folder(&scratch), path, spec(StoredType::F32)).unwrap();
        assert_eq!((free(store, name), free("new", name)), (Ok(false), Ok(true)));
    }
    scratch.put("cut/.zarr.json.7-0.partial", "");
    scratch.put("notes/mine.txt", "");
    assert_eq!((free("cut", ""), free("cut", "a")), (Ok(false), Ok(false)));
    assert!(free("notes", "").unwrap_err().ends_with("notes: is there, and is no Zarr array"));
    assert!(free("notes", "a").unwrap_err().ends_with("notes: is there, and has no array `a`"));
    assert!(free("plain/zarr.json", "").is_err());
}

fn write_all(storage: Arc<dyn WritableStorage>) {
    fill(ArrayWriter::resume(storage, "a", job("crash")).unwrap());
}

/// Aborts the process before a put.
fn abort_before(puts: &Puts, number: u64, key: &str, value: &[u8]) -> io::Result<()> {
    if number == puts.at {
        std::process::abort();
    }
    puts.folder.put(key, value)
}

/// Aborts the process before the file of a put gets its name.
fn abort_unnamed(puts: &Puts, number: u64, key: &str, value: &[u8]) -> io::Result<()> {
    let unnamed = puts.folder.write(key, value)?;
    if number == puts.at {
        std::process::abort();
    }
    unnamed.name(true)
}

/// If a process is killed at any put (of metadata, a tile or the status), another one continues, and the result is identical to the byte.
#[test]
fn a_killed_process_is_taken_up() {
    const CHILD: &str = "TEATIME_TEST_KILLED_WRITER";
    if let Ok(child) = std::env::var(CHILD) {
        let [path, at, named] = child.split('|').collect::<Vec<_>>().try_into().unwrap();
        let put = if named == "true" { abort_before } else { abort_unnamed };
        let folder = Folder::new(path).durable();
        write_all(Arc::new(Puts { folder, count: AtomicU64::new(0), at: at.parse().unwrap(), put }));
        return;
    }
    let whole = Scratch::new();
    write_all(folder(&whole));
    let whole = files(whole.path());
    assert_eq!(whole.len(), 10);
    // The puts are those of the metadata, of nine tiles, and of the status.
    for at in 0..11 {
        for named in [false, true] {
            let scratch = Scratch::new();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "store::zarr::tests::writer::a_killed_process_is_taken_up"]);
            let what = format!("{}|{at}|{named}", scratch.path().display());
            let ran = child.env(CHILD, what).output().unwrap();
            assert!(!ran.status.success(), "put {at} was not reached");
            let left = files(scratch.path());
            let partial = left.keys().filter(|key| key.ends_with(".partial")).count();
            assert_eq!((partial, left.len()), (usize::from(!named), at + usize::from(!named)));
            if at > 0 {
                assert_eq!(said(&scratch, "a").0, "incomplete");
                // Missing chunks of an incomplete array are not read as zeros.
                let opened = ZarrArray::open(scratch.path(), "a", MissingChunk::Fill);
                assert_refused(opened, &["not written to its end"]);
                let writer = ArrayWriter::resume(folder(&scratch), "a", job("crash")).unwrap();
                assert_eq!(writer.left().count(), 10 - at);
            }
            write_all(folder(&scratch));
            let resumed = files(scratch.path());
            assert!(resumed == whole, "{at} {named}: {:?}", resumed.keys());
            assert_eq!(said(&scratch, "a").0, "complete");
            assert_eq!(read(&scratch, "a"), expected());
        }
    }
}

/// A tile that cannot be written leaves no partial file.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_leaves_nothing() {
    let scratch = Scratch::new();
    let writer = ArrayWriter::create(folder(&scratch), "a", job("full")).unwrap();
    writer.write(&[0, 0], &tile(&writer, &[0, 0])).unwrap();
    // A folder exists at the path of the tile.
    fs::create_dir_all(scratch.path().join("a/c/0/1/x")).unwrap();
    assert!(matches!(writer.write(&[0, 1], &tile(&writer, &[0, 1])), Err(Error::Io { .. })));
    assert!(files(scratch.path()).keys().all(|key| !key.ends_with(".partial")));
    assert_eq!(writer.left().count(), 8);
}

/// A tile that memory could not hold is refused, though the chunks of a shard are small.
#[test]
fn shards_that_are_too_large() {
    let spec = ArraySpec::new(StoredType::U8, &[1 << 40], &[1 << 20]).shard_shape(vec![1 << 40]);
    let error = ArrayWriter::create(folder(&Scratch::new()), "a", spec).unwrap_err().to_string();
    assert!(error.contains("1099511627776 bytes each, more than 2147483648"), "{error}");
}

/// The metadata matches what other readers expect.
#[test]
fn metadata_as_zarr_has_them() {
    let scratch = Scratch::new();
    let mut spec = job("metadata").axes(&["y", "x"]).shard_shape(vec![32, 24]);
    spec.chunk_shape = vec![8, 12];
    ArrayWriter::create(folder(&scratch), "a", spec).unwrap();
    let read: Value = serde_json::from_slice(&fs::read(scratch.path().join("a/zarr.json")).unwrap()).unwrap();
    let bytes = &little_endian()[0];
    let expected = json!({
        "zarr_format": 3, "node_type": "array", "shape": [70, 50], "data_type": "float32",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [32, 24] } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": "NaN", "dimension_names": ["y", "x"],
        "attributes": { "teatime": { "status": "incomplete", "job": said(&scratch, "a").1 } },
        "codecs": [{ "name": "sharding_indexed", "configuration": {
            "chunk_shape": [8, 12], "index_location": "end", "index_codecs": [bytes, { "name": "crc32c" }],
            "codecs": [bytes, { "name": "zstd", "configuration": { "level": 3, "checksum": true } }, { "name": "crc32c" }],
        }}],
    });
    assert_eq!(read, expected);
}

/// Tests only if `TEATIME_ZARR_PYTHON` names a Python that has zarr-python (`tests/fixtures/requirements.txt`).
#[test]
fn zarr_python_reads_it() {
    let Some(python) = std::env::var_os("TEATIME_ZARR_PYTHON") else { return };
    let scratch = Scratch::new();
    for (name, spec) in ways() {
        fill(ArrayWriter::create(folder(&scratch), &format!("numbers/{name}"), spec).unwrap());
    }
    let types = tempfile::Builder::new().prefix("types").rand_bytes(0).tempdir_in(scratch.path()).unwrap();
    let types = Scratch(types);
    other_types(&types);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/read_back.py");
    let ran = Command::new(python).arg(script).arg(scratch.path()).output().unwrap();
    let text = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(ran.status.success() && text.contains("40 arrays as they should be"), "{text}");
}
