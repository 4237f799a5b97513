//! Tests with archives of other programs, and with bytes that are wrong in known places.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Mutex,
};

use flate2::{Compression, write::DeflateEncoder};

use super::*;
use crate::{
    ChunkedArray, MissingChunk, StoredType,
    openings::{Numbers, Zipped, elements, patched, plan_rows, read_blocks, stored, zip},
    store::{ArraySpec, ArrayWriter, Folder, StorageOptions, ZarrArray, open_storage},
};

const FIXTURES: [&str; 4] = ["stored.ozx", "deflated.zarr.zip", "large.zarr.zip", "info-zip.ZIP"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/zip").join(name)
}

/// An object in memory that notes the ranges that are asked for.
#[derive(Debug)]
struct Object {
    bytes: Vec<u8>,
    asked: Mutex<Vec<Range<u64>>>,
}

impl Storage for Object {
    fn place(&self, _: &str) -> String {
        "http://host/x.zip".into()
    }

    fn fetches(&self) -> usize {
        7
    }

    fn get(&self, _: &str, _: u64) -> io::Result<Value> {
        unreachable!("archives are read by ranges")
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Value> {
        assert!(key.is_empty() && range.start < range.end);
        self.asked.lock().unwrap().push(range.clone());
        let part = self.bytes.get(to_usize(range.start)..to_usize(range.end));
        Ok(Value::Bytes(StoredBytes::Owned(part.ok_or(ErrorKind::UnexpectedEof)?.to_vec())))
    }

    fn size(&self, _: &str) -> io::Result<Option<u64>> {
        Ok(Some(self.bytes.len() as u64))
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        unreachable!("names are in the archive")
    }
}

fn within(bytes: &[u8], path: &str) -> (Arc<Object>, Result<ZipStorage>) {
    let object = Arc::new(Object { bytes: bytes.to_vec(), asked: Mutex::default() });
    (object.clone(), ZipStorage::within(object, path))
}

fn opened(bytes: &[u8]) -> ZipStorage {
    within(bytes, "").1.unwrap()
}

/// Returns a value, or a text on why there is none.
fn got(zip: &ZipStorage, key: &str) -> Result<Vec<u8>, String> {
    match zip.get(key, 2 << 20) {
        Ok(Value::Bytes(bytes)) => Ok(bytes.to_vec()),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn deflated<'a>(name: &'a str, value: &'a [u8]) -> Zipped<'a> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(value).unwrap();
    (name, 8, encoder.finish().unwrap(), value)
}

fn find(bytes: &[u8], signature: &[u8]) -> usize {
    bytes.windows(signature.len()).position(|window| window == signature).unwrap()
}

/// A shard that is deflated is inflated once in a pass within the least memory, which counts it; one that is stored is read by ranges.
#[test]
fn shards_in_archives() {
    let folder = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new(StoredType::F32, &[8, 6], &[2, 2]).shard_shape(vec![8, 6]);
    let writer = ArrayWriter::create(Arc::new(Folder::new(folder.path())), "", spec).unwrap();
    let values: Vec<f32> = (0..48_u8).map(f32::from).collect();
    writer.write(&[0, 0], &values).unwrap();
    writer.finish().unwrap();
    let [document, shard] = ["zarr.json", "c/0/0"].map(|name| fs::read(folder.path().join(name)).unwrap());
    for is_deflated in [false, true] {
        let of_shard = if is_deflated { deflated("c/0/0", &shard) } else { stored("c/0/0", &shard) };
        let archive = zip(&[deflated("zarr.json", &document), of_shard]);
        let (object, zip) = within(&archive, "");
        let storage: Arc<dyn Storage> = Arc::new(zip.unwrap());
        let array = Arc::new(ZarrArray::open_in(&storage, "", MissingChunk::Error).unwrap());
        let shards = array.shards().unwrap();
        assert_eq!(shards.are_whole, is_deflated);
        let plan = plan_rows(array, 2);
        assert_eq!(plan.largest_need() > shards.bytes, is_deflated);
        object.asked.lock().unwrap().clear();
        let (found, _) = read_blocks(&plan, 2, plan.largest_need()).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&found), values);
        // The local header, the index, and 12 chunks; or the entry.
        assert_eq!(object.asked.lock().unwrap().len(), if is_deflated { 1 } else { 14 });
    }
}

#[test]
fn archives_of_other_programs() {
    let expected: Vec<f32> = (0..30_u8).map(f32::from).collect();
    let open = |place: &Path, path: &str| ZarrArray::open(place, path, MissingChunk::Error).unwrap();
    for name in FIXTURES {
        let path = fixture(name);
        let root = if name == "info-zip.ZIP" { "x.zarr/" } else { "" };
        for (place, within) in [("", "a/x"), ("a", "x"), ("a/x", ""), (&*format!("{root}a/"), "x")] {
            let array = open(&path.join(place), within);
            assert_eq!(array.name(), format!("{}/{root}a/x", path.display()));
            // The elements of archives that are stored are read where they are.
            let is_plain = matches!(name, "stored.ozx" | "large.zarr.zip");
            let mut second = [0.0f32];
            let open = array.open_chunk(&[1, 0]).map(|chunk| {
                chunk.read(1, 4, bytemuck::bytes_of_mut(&mut second)).unwrap();
                second
            });
            assert_eq!((array.opens_chunks(), open), (is_plain, is_plain.then_some([19.0])));
            assert_eq!(elements::<f32>(Arc::new(array)), expected, "{name} {place} {within}");
        }
        let storage = open_storage(&path, &StorageOptions::default()).unwrap();
        let lists = ["", "a", "a/x", "a/x/c", "a/x/c/0", "b"].map(|prefix| storage.list(prefix).unwrap());
        assert_eq!(lists.map(|names| names.join(" ")), ["a", "x", "c", "0 1 2", "", ""], "{name}");
        let chunk: &[u8] = bytemuck::cast_slice(&expected[12..24]);
        assert_eq!((storage.size("a/x/c/1/0").unwrap(), storage.size("a").unwrap()), (Some(48), None));
        assert!(matches!(storage.get("a/x/c/1/0", 47).unwrap(), Value::Large(48)));
        for range in [0..48, 5..9, 48..48] {
            let Value::Bytes(part) = storage.get_range("/a/x/c//1/0", range.clone()).unwrap() else {
                panic!()
            };
            assert_eq!(*part, chunk[to_usize(range.start)..to_usize(range.end)]);
        }
        let beyond = storage.get_range("a/x/c/1/0", 40..49).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(storage.get("a/../b", 9).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    // A folder is a folder, whatever its name.
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("x.zip");
    fs::create_dir(&folder).unwrap();
    assert!(open_storage(&folder, &StorageOptions::default()).unwrap().list("").unwrap().is_empty());
    fs::write(folder.join("y.zip"), b"no archive").unwrap();
    let why = ZarrArray::open(folder.join("y.zip/a"), "", MissingChunk::Error).unwrap_err();
    assert!(matches!(&why, Error::Store { path, .. } if path.ends_with("y.zip")), "{why}");
}

/// The directory takes one request, or two; a value takes one with its header, and a part of it one more.
#[test]
fn remote_archives_take_few_requests() {
    let large = vec![7; 100_000];
    for bytes in
        [zip(&[stored("k", b"value"), stored("l", b"")]), zip(&[stored("k", b"value"), stored("l", &large)])]
    {
        let (object, zip) = within(&bytes, "");
        let zip = zip.unwrap();
        let asked = || {
            let ranges = std::mem::take(&mut *object.asked.lock().unwrap());
            ranges.into_iter().map(|range| [range.start, range.end]).collect::<Vec<_>>()
        };
        let first = bytes.len().saturating_sub(65_633) as u64;
        assert_eq!(asked(), [[first, bytes.len() as u64]]);
        assert_eq!((zip.fetches(), zip.place("k")), (7, "http://host/x.zip/k".into()));
        assert!(!zip.opens_values() && zip.open_value("k").is_none());
        assert_eq!(got(&zip, "k").unwrap(), b"value");
        // The request ends where the next header begins.
        assert_eq!(asked(), [[0, 36]]);
        assert_eq!(got(&zip, "k").unwrap(), b"value");
        assert_eq!(asked(), [[31, 36]]);
        assert!(matches!(zip.get_range("k", 1..3).unwrap(), Value::Bytes(bytes) if *bytes == *b"al"));
        assert_eq!(asked(), [[32, 34]]);
        assert_eq!(got(&zip, "l").unwrap().len(), if first == 0 { 0 } else { large.len() });
    }
    // A long directory takes a request of its own.
    let names: Vec<String> = (0..1500).map(|i| format!("a/x/c/{i}")).collect();
    let bytes = zip(&names.iter().map(|name| stored(name, b"1")).collect::<Vec<_>>());
    let (object, zip) = within(&bytes, "");
    assert_eq!(got(&zip.unwrap(), "a/x/c/777").unwrap(), b"1");
    assert_eq!(object.asked.lock().unwrap().len(), 3);
}

#[test]
fn names_and_folders() {
    let names = ["/absolute", "../up", "a/../b", "back\\slash", "a//b", "./c", "folder/", "k", "a/k", "k"];
    let bytes = zip(&names.map(|name| stored(name, name.as_bytes())));
    let listed = opened(&bytes);
    assert_eq!(listed.entries.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["a/k", "k"]);
    assert_eq!(listed.list("").unwrap(), ["a"]);
    // The last entry with a name counts.
    let twice = opened(&zip(&[stored("k", b"old"), stored("k", b"new"), stored("j", b"j")]));
    assert_eq!(got(&twice, "k").unwrap(), b"new");
    let empty = opened(&zip(&[]));
    assert!(empty.list("").unwrap().is_empty() && empty.size("zarr.json").unwrap().is_none());
    // The folder with metadata is the root, if there is one such folder, and none at the root.
    let [x, y, own] = ["x.zarr/.zgroup", "y.zarr/zarr.json", ".zattrs"].map(|name| stored(name, b"{}"));
    let other = stored("__MACOSX/x.zarr/._.zgroup", b"");
    for (entries, path, place) in [
        (vec![x.clone(), other.clone()], "", "/x.zarr"),
        (vec![x.clone(), other.clone()], "/x.zarr/", "/x.zarr"),
        (vec![x.clone(), other.clone()], "a/b", "/x.zarr/a/b"),
        (vec![x.clone(), y.clone()], "", ""),
        (vec![x.clone(), y], "y.zarr", "/y.zarr"),
        (vec![x, own], "", ""),
        (vec![other], "a", "/a"),
    ] {
        let zip = within(&zip(&entries), path).1.unwrap();
        assert_eq!(zip.place(""), format!("http://host/x.zip{place}"), "{path}");
    }
    let why = within(&zip(&[]), "../a").1.unwrap_err().to_string();
    assert!(why.contains("`../a` is not a path within the archive"), "{why}");
}

#[test]
fn ends_and_directories_that_are_wrong() {
    let one = zip(&[stored("k", b"value")]);
    let two = zip(&[stored("k", b"value"), stored("l", b"other")]);
    let (directory, end) = (36, one.len() - 22);
    let commented = |comment: &[u8]| {
        let len = u16::try_from(comment.len()).unwrap().to_le_bytes();
        [&*patched(&one, end + 20, &len), comment].concat()
    };
    let large = fs::read(fixture("large.zarr.zip")).unwrap();
    let [record, locator, large_end] =
        [b"PK\x06\x06", b"PK\x06\x07", b"PK\x05\x06"].map(|sign| find(&large, sign));
    let many = patched(&large, record + 24, &[10_000_000_u64.to_le_bytes(); 2].concat());
    for (bytes, why) in [
        (Vec::new(), "is no zip archive"),
        (b"PK\x05\x06".to_vec(), "is no zip archive"),
        (one[..one.len() - 1].to_vec(), "is no zip archive"),
        ([&*one, b"x"].concat(), "is no zip archive"),
        (commented(&one[end..]), "has two ends"),
        (patched(&one, end + 4, &[1]), "was split"),
        (patched(&one, end + 8, &[0]), "was split"),
        (patched(&one, end + 8, &[0, 0, 0, 0]), "more than the 0 entries"),
        (patched(&one, end + 8, &[2, 0, 2, 0]), "no room for 2 entries"),
        (patched(&one, end + 12, &[255; 4]), "1 entries in a directory of 4294967295 bytes"),
        (patched(&one, end + 12, &[0, 0, 1]), "no room for 1 entries"),
        (patched(&one, end + 16, &[255; 4]), "no room for 1 entries at byte 4294967295"),
        (patched(&one, end + 16, &[35]), "directory is damaged"),
        (patched(&one, directory, b"X"), "directory is damaged"),
        (patched(&one, directory + 28, &[255, 255]), "directory is damaged"),
        (patched(&one, directory + 30, &[1]), "directory is damaged"),
        (patched(&one, directory + 32, &[1]), "directory is damaged"),
        (patched(&one, directory + 34, &[1]), "was split"),
        (patched(&one, directory + 20, &[6]), "`k` claims 6 bytes at 0, which are not there"),
        (patched(&one, directory + 42, &[1]), "`k` claims 5 bytes at 1, which are not there"),
        (patched(&one, directory + 42, &[255; 4]), "`k` has no sizes"),
        (patched(&two, 72 + 20, &[6]), "`k` and `l` overlap"),
        (patched(&two, 72 + 47 + 42, &[0]), "overlap"),
        (patched(&many, large_end + 8, &[255; 4]), "has 10000000 entries in a directory"),
        (many, "is not that of its end"),
        (patched(&large, record, b"X"), "is not that of its end"),
        (patched(&large, record + 16, &[1]), "is not that of its end"),
        (patched(&large, locator + 8, &[255; 8]), "is not before its end"),
        (patched(&large, locator + 8, &[0; 8]), "is not that of its end"),
        (patched(&large, record + 48, &[255; 8]), "is not that of its end"),
    ] {
        let error = within(&bytes, "").1.unwrap_err();
        assert!(matches!(&error, Error::Store { path, .. } if &**path == "http://host/x.zip"), "{error}");
        assert!(error.to_string().contains(why), "{error}, not: {why}");
    }
    // A comment may hold signatures, and the longest one fits.
    for comment in [&[b"PK\x05\x06", &[0; 20][..]].concat(), &one[..one.len() - 1], &[b'x'; 65_535]] {
        assert_eq!(got(&opened(&commented(comment)), "k").unwrap(), b"value");
    }
}

#[test]
fn entries_that_are_wrong() {
    let value = vec![0; 2 << 20];
    let [plain, packed] = [zip(&[stored("k", b"value")]), zip(&[deflated("k", &value)])];
    assert_eq!(got(&opened(&packed), "k").unwrap(), value);
    // Both headers may lie in the same way.
    let both = |bytes: &[u8], at: usize, others: &[u8]| {
        patched(&patched(bytes, at, others), find(bytes, b"PK\x01\x02") + at + 2, others)
    };
    let directory = 36;
    for (bytes, why) in [
        (both(&plain, 6, &[1]), "is encrypted"),
        (patched(&plain, 6, &[1]), "is not where"),
        (both(&plain, 8, &[93]), "method 93"),
        (patched(&plain, 8, &[8]), "is not where"),
        (patched(&plain, 0, b"X"), "is not where"),
        (patched(&plain, 30, b"l"), "is not where"),
        (patched(&plain, 26, &[2]), "is not where"),
        (patched(&plain, 28, &[1]), "is not where"),
        (patched(&plain, 28, &[255, 255]), "is not where"),
        (patched(&plain, 18, &[4]), "is not where"),
        (patched(&plain, 22, &[4]), "is not where"),
        (patched(&plain, directory + 20, &[4]), "claims 5 bytes, of which 4 are stored"),
        (patched(&plain, 33, b"X"), "checksum"),
        (both(&plain, 14, &[1, 2, 3, 4]), "checksum"),
        (both(&packed, 22, &[10, 0, 0]), "claims 10 bytes"),
        (both(&packed, 22, &[255, 255, 31]), "to the 2097151 bytes"),
        (both(&zip(&[deflated("k", &[7; 500])]), 22, &[10, 0]), "to the 10 bytes"),
        (both(&zip(&[deflated("k", b"value")]), 22, &[0, 0, 1]), "claims 65536 bytes"),
        (patched(&packed, 31, &[255]), "deflate"),
    ] {
        let said = got(&opened(&bytes), "k").unwrap_err();
        assert!(said.contains(why), "{said}, not: {why}");
    }
    // An entry that is not asked for does no harm.
    let zip = opened(&both(&zip(&[stored("k", b"value"), stored("l", b"other")]), 8, &[93]));
    assert_eq!((got(&zip, "l").unwrap(), zip.size("k").unwrap()), (b"other".to_vec(), Some(5)));
}

/// A stored entry of a file that is longer than a piece is read to its end, and so is it checked.
#[test]
fn entries_of_several_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let value: Vec<u8> = (0..2 * AT_ONCE + 3).map(|i| (i % 251).to_le_bytes()[0]).collect();
    let (mut archive, file) = (zip(&[stored("x", &value)]), folder.path().join("x.zip"));
    let read = |archive: &[u8]| {
        fs::write(&file, archive).unwrap();
        ZipStorage::open(&file, "").unwrap().get("x", u64::MAX)
    };
    assert!(matches!(read(&archive), Ok(Value::Bytes(bytes)) if *bytes == *value));
    // The data follows a name of one byte.
    archive[LOCAL + value.len()] ^= 1;
    let error = read(&archive).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

/// Whatever is changed in an archive, a value is its own or an error, and nothing beyond the archive is asked for.
#[test]
fn changed_bytes_give_errors() {
    let mut numbers = Numbers(1);
    let mut random = |below: usize| numbers.below(below);
    let mut kept = [0, 0];
    for name in FIXTURES {
        let bytes = fs::read(fixture(name)).unwrap();
        let whole = opened(&bytes);
        let names: Vec<&str> = whole.entries.iter().map(|entry| &*entry.name).collect();
        for _ in 0..3000 {
            let mut changed = bytes.clone();
            for _ in 0..=random(3) {
                // Numbers are at their limits more often than elsewhere.
                let (at, value) = (random(changed.len()), [0, 1, 255, random(256)][random(4)]);
                let end = (at + 1 + random(4)).min(changed.len());
                changed[at..end].fill(u8::try_from(value).unwrap());
            }
            if random(8) == 0 {
                changed.truncate(random(changed.len()));
            }
            let (object, zip) = within(&changed, "");
            let Ok(mut zip) = zip else {
                kept[0] += 1;
                continue;
            };
            zip.folder.clear();
            for name in &names {
                let (own, most) = (whole.find(name).unwrap(), 1 << 20);
                if let Ok(Value::Bytes(value)) = zip.get(name, most) {
                    assert_eq!(*value, *whole.value(own).unwrap(), "{name}");
                    kept[1] += 1;
                }
                let _ = (zip.get_range(name, 1..9), zip.list(name));
            }
            let asked = object.asked.lock().unwrap();
            assert!(asked.iter().all(|range| range.end <= changed.len() as u64), "{asked:?}");
        }
    }
    assert!(kept.iter().all(|count| *count > 1000), "{kept:?}");
}

#[cfg(feature = "remote")]
#[test]
fn behind_urls() {
    let server = crate::openings::Server::of(&fixture(""));
    for name in FIXTURES {
        let local = ZarrArray::open(fixture(name).join("a/x"), "", MissingChunk::Error).unwrap();
        let url = format!("{}/{name}/a/x?sig=SECRET", server.url);
        let remote = ZarrArray::open(&url, "", MissingChunk::Error).unwrap();
        let root = if name == "info-zip.ZIP" { "x.zarr/" } else { "" };
        assert_eq!((remote.fetches(), remote.name()), (64, &*format!("{}/{name}/{root}a/x", server.url)));
        let [remote, local] = [remote, local].map(|array| elements::<f32>(Arc::new(array)));
        assert_eq!(remote, local);
        // The size, the directory, the metadata, which are read once, and three chunks.
        let requests = server.requests();
        assert!(requests.len() <= 6, "{requests:?}");
        assert!(requests.iter().all(|request| request.contains("?sig=SECRET")), "{requests:?}");
    }
    let why = ZarrArray::open(format!("{}/none.zip", server.url), "", MissingChunk::Error).unwrap_err();
    assert!(matches!(&why, Error::Io { path, .. } if path.ends_with("none.zip")), "{why}");
}
