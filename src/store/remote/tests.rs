//! Tests with a server that fails as servers do.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::PARTED;
use crate::{
    Cancel, ChunkedArray, Device, Error, MissingChunk, Run, StoredType,
    extent::to_usize,
    openings::{Answer, Server},
    store::{
        ArraySpec, ArrayWriter, Attributes, Folder, NpyArray, Storage, StorageOptions, Value, ZarrArray,
        ZarrFormat, open_storage, write_group, write_npy,
    },
    stream::StoredMatrix,
};

/// A server of one value `x`, and the storage of it, which tries a request three times.
fn served(value: &[u8]) -> (Server, Arc<dyn Storage>) {
    let server = Server::of(Path::new("no folder"));
    server.set("x", value);
    let options = StorageOptions::default().option("max_retries", "2").option("retry_timeout", "20s");
    let storage = super::open(&format!("{}/?key=SECRET", server.url), &options).unwrap();
    (server, storage)
}

fn got(storage: &dyn Storage) -> Result<Vec<u8>, String> {
    match storage.get("x", 1 << 30) {
        Ok(Value::Bytes(bytes)) => Ok(bytes.to_vec()),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn passing_faults_are_tried_again() {
    for fault in [
        Answer::Status("503 Service Unavailable", "", "<Code>SlowDown</Code>"),
        Answer::Status("429 Too Many Requests", "Retry-After: 1\r\n", ""),
        Answer::Status("500 Internal Server Error", "", "<html>"),
        Answer::Cut(true),
        Answer::Cut(false),
    ] {
        let (server, storage) = served(b"0123456789");
        server.answer("x", fault.clone(), 2);
        // All answers are of the same kind, since an `ETag` that comes and goes is a change.
        if matches!(fault, Answer::Cut(false)) {
            server.answer("x", Answer::Plain, 1);
        }
        assert_eq!(got(&*storage).as_deref(), Ok(&b"0123456789"[..]), "{fault:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "{requests:?}");
        assert!(requests.iter().all(|request| request.starts_with("GET /x?key=SECRET")), "{requests:?}");
        // The part of a body with an `ETag` that has come is not asked for again.
        assert_eq!(requests[1].ends_with(" 5-9"), matches!(fault, Answer::Cut(true)), "{requests:?}");
    }
}

#[test]
fn lasting_faults_are_errors_without_secrets() {
    let denied = "<Error><Code>AccessDenied</Code><Token>SECRET</Token></Error>";
    let region = "<Error><Code>PermanentRedirect</Code><Region>eu-west-9</Region></Error>";
    for (fault, requests, words) in [
        (Answer::Status("503 Service Unavailable", "", "SECRET"), 3, &["after 2 retries", "503"][..]),
        (
            Answer::Status("403 Forbidden", "", denied),
            1,
            &["403", "AccessDenied", "credentials", "--anonymous"],
        ),
        (Answer::Status("401 Unauthorized", "", ""), 1, &["401", "credentials"]),
        (Answer::Status("301 Moved Permanently", "", region), 1, &["another region", "--region"]),
        (Answer::Status("400 Bad Request", "", region), 1, &["another region, eu-west-9"]),
        (Answer::Status("200 OK", "Content-Encoding: gzip\r\n", "zipped"), 1, &["gzip"]),
        (Answer::Length(20), 3, &["broke off"]),
        (Answer::Cut(false), 3, &["broke off"]),
    ] {
        let (server, storage) = served(b"0123456789");
        server.answer("x", fault.clone(), 9);
        let why = got(&*storage).unwrap_err();
        assert_eq!(server.requests().len(), requests, "{why}");
        for word in words {
            assert!(why.contains(word), "{word}: {why}");
        }
        assert!(!why.contains("SECRET") && !why.contains('<'), "{why}");
    }
    // A document is taken for absent only where access is denied, not for signatures that are wrong or late.
    let late = "<Error><Code>RequestTimeTooSkewed</Code></Error>";
    for (status, body, is_denied) in [
        ("403 Forbidden", denied, true),
        ("403 Forbidden", "", true),
        ("403 Forbidden", late, false),
        ("401 Unauthorized", "", false),
    ] {
        let (server, storage) = served(b"x");
        server.answer("x", Answer::Status(status, "", body), 1);
        let kind = storage.get("x", 9).unwrap_err().kind();
        assert_eq!(kind == std::io::ErrorKind::PermissionDenied, is_denied, "{status} {body}");
    }
    let (server, storage) = served(b"");
    // The server does not speak TLS.
    let options = StorageOptions::default().option("max_retries", "0");
    let secure = super::open(&server.url.replace("http", "https"), &options).unwrap();
    let why = got(&*secure).unwrap_err();
    assert!(why.contains("https://127.0.0.1") && why.contains("error sending request"), "{why}");
    drop(server);
    let why = got(&*storage).unwrap_err();
    assert!(why.contains("after 2 retries") && why.contains("refused") && !why.contains("SECRET"), "{why}");
    assert!(!storage.place("x").contains("SECRET") && !format!("{storage:?}").contains("SECRET"));
}

#[test]
fn absent_large_and_changed_values() {
    let (server, storage) = served(b"0123456789");
    assert!(matches!(storage.get("none", 9).unwrap(), Value::Absent));
    assert_eq!([storage.size("x").unwrap(), storage.size("none").unwrap()], [Some(10), None]);
    // No body is read.
    assert!(matches!(storage.get("x", 9).unwrap(), Value::Large(10)));
    assert!(matches!(storage.get_range("x", 3..5).unwrap(), Value::Bytes(bytes) if *bytes == *b"34"));
    server.set("x", b"012345678x");
    assert!(got(&*storage).unwrap_err().contains("changed while it was read"));
    assert!(storage.get_range("x", 3..5).unwrap_err().to_string().contains("changed"));
    // An object that is gone, or has come, has changed.
    let (server, storage) = served(b"0123456789");
    server.answer("x", Answer::Status("404 Not Found", "", ""), 1);
    assert_eq!(got(&*storage), Err("Absent".into()));
    assert!(got(&*storage).unwrap_err().contains("changed"));
    let (server, storage) = served(b"0123456789");
    assert!(got(&*storage).is_ok());
    server.answer("x", Answer::Status("404 Not Found", "", ""), 1);
    assert!(got(&*storage).unwrap_err().contains("changed"));
    assert!(storage.list("").unwrap_err().to_string().contains("HTTP lists no names"));
    for key in ["../x", "a\\b"] {
        assert!(storage.get(key, 9).is_err(), "{key}");
    }
}

#[test]
fn large_values_come_in_parts() {
    let value: Vec<u8> = (0..PARTED + 1000).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let (server, storage) = served(&value);
    assert!(got(&*storage).unwrap() == value);
    let parts =
        server.requests().iter().filter_map(|request| request.split(' ').nth(2).map(str::to_owned)).count();
    assert_eq!(parts, 2);
    let Ok(Value::Bytes(part)) = storage.get_range("x", 500..PARTED as u64 + 900) else { panic!() };
    assert!(*part == value[500..PARTED + 900]);
    assert_eq!(server.requests().len(), 3);
    // A server without ranges.
    let (server, storage) = served(&value);
    server.answer("x", Answer::Whole, 99);
    let both = [(); 2].map(|()| {
        thread::spawn({
            let storage = Arc::clone(&storage);
            move || got(&*storage)
        })
    });
    assert!(both.into_iter().all(|got| got.join().unwrap().unwrap() == value));
    let why = storage.get_range("x", 3..5).unwrap_err().to_string();
    assert!(why.contains("sends no parts"), "{why}");
    for answer in [Answer::Whole, Answer::Plain] {
        let (server, storage) = served(b"");
        server.set("y", b"0123456789");
        server.answer("y", answer, 9);
        for _ in 0..2 {
            assert!(matches!(storage.get_range("y", 3..5).unwrap(), Value::Bytes(bytes) if *bytes == *b"34"));
        }
        // Without ranges the whole value comes once, after the request for a range.
        assert_eq!(server.requests().len(), 2);
        assert!(storage.get_range("y", 3..50).unwrap_err().to_string().contains("bytes"));
    }
}

#[test]
fn a_request_that_hangs_ends_with_the_flag() {
    let (server, cancel) = (Server::of(Path::new("no folder")), Cancel::default());
    server.set("x/zarr.json", b"{}");
    server.answer("x/zarr.json", Answer::Hang, 9);
    let (url, options) = (format!("{}/x", server.url), StorageOptions::default().cancel(cancel.clone()));
    let opening = thread::spawn(move || open_storage(url, &options).map(drop));
    while server.seen().is_empty() {
        thread::yield_now();
    }
    let started = Instant::now();
    cancel.cancel();
    let error = opening.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("cancelled") && started.elapsed() < Duration::from_secs(1), "{error}");
}

/// Writes an array of 3 x 5 in chunks of 2 x 2 at `path`, whose last chunk is absent.
fn write(folder: &Path, path: &str, format: ZarrFormat) {
    let spec = ArraySpec::new(StoredType::F32, &[3, 5], &[2, 2]).format(format).fill(7.5);
    let writer = ArrayWriter::create(Arc::new(Folder::new(folder)), path, spec).unwrap();
    for index in [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]] {
        let tile: Vec<f32> = (0..4).map(|i| (i + 10 * index[1] + 100 * index[0]) as f32).collect();
        let [rows, columns] = [(3 - 2 * index[0]).min(2), (5 - 2 * index[1]).min(2)];
        writer.write(&index, &tile[..to_usize(rows * columns)]).unwrap();
    }
    writer.write(&[1, 2], &[7.5f32]).unwrap();
    writer.finish().unwrap();
    let names = ["1.2", "c/1/2"].map(|name| folder.join(path).join(name));
    assert_eq!(names.iter().filter(|name| std::fs::remove_file(name).is_ok()).count(), 1);
}

fn elements(array: impl ChunkedArray + 'static) -> Vec<f32> {
    let matrix = StoredMatrix::new(vec![Arc::new(array)], &Device::cpu()).unwrap();
    matrix.to_tensor(&Run::default()).unwrap().read().unwrap()
}

#[test]
fn arrays_are_those_of_the_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    for (name, format) in [("v2", ZarrFormat::V2), ("v3", ZarrFormat::V3)] {
        write_group(&Folder::new(folder.join(name)), "", format, &Attributes::new()).unwrap();
        write(&folder.join(name), "a/x", format);
        let open = |place: &Path, path: &str| ZarrArray::open(place, path, MissingChunk::Fill).unwrap();
        let local = elements(open(&folder.join(name), "a/x"));
        let server = Server::of(folder);
        let remote = open(Path::new(&format!("{}/{name}/", server.url)), "a/x");
        assert_eq!((remote.fetches(), remote.name()), (64, &*format!("{}/{name}/a/x", server.url)));
        assert_eq!(elements(remote), local);
        // Each document is read once.
        let mut requests = server.requests();
        requests.retain(|request| request.contains("zarr.json") || request.contains("/a/x/.z"));
        let all = requests.len();
        requests.sort();
        requests.dedup();
        assert_eq!(all, requests.len());
        let array = PathBuf::from(format!("{}/{name}/a/x", server.url));
        assert_eq!(elements(open(&array, "")), local);
        // Metadata that are denied are not there, but the last chunk might be.
        server.deny_absent();
        let why = open(&array, "").read_chunk(&[1, 2]).unwrap_err().to_string();
        assert!(why.contains("403") && why.contains("chunk [1, 2]"), "{why}");
        let group = format!("{}/{name}", server.url);
        let why = ZarrArray::open(group, "b", MissingChunk::Fill).unwrap_err().to_string();
        assert!(why.ends_with("/b: no such array"), "{why}");
        let none = format!("{}/{name}/none", server.url);
        let why = ZarrArray::open(none, "", MissingChunk::Fill).unwrap_err().to_string();
        assert!(why.contains("403") && why.contains("--anonymous"), "{why}");
    }
    for shape in [[40, 7], [3, 100_000]] {
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| i as f32).collect();
        write_npy(folder.join("x.npy"), &values, shape).unwrap();
        let server = Server::of(folder);
        let array = NpyArray::open(format!("{}/x.npy", server.url)).unwrap();
        assert_eq!(elements(array), values);
        assert!(server.requests().iter().all(|request| request.contains("/x.npy")));
    }
}

/// A chunk of a shard is one request, after two for the index of the shard; a pass over all of a shard is a request.
#[test]
fn chunks_of_shards_are_ranges() {
    let scratch = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new(StoredType::F32, &[8, 6], &[2, 2]).shard_shape(vec![8, 6]);
    let writer = ArrayWriter::create(Arc::new(Folder::new(scratch.path())), "x", spec).unwrap();
    let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
    writer.write(&[0, 0], &values).unwrap();
    writer.finish().unwrap();
    let server = Server::of(scratch.path());
    let open = || ZarrArray::open(&server.url, "x", MissingChunk::Error).unwrap();
    let shards = || {
        let requests = server.requests();
        requests.into_iter().filter(|request| request.contains("/x/c/0/0")).collect::<Vec<_>>()
    };
    let array = open();
    for index in [[0, 1], [3, 2]] {
        let first = (12 * index[0] + 2 * index[1]) as f32;
        let expected = [first, first + 1.0, first + 6.0, first + 7.0];
        assert_eq!(array.read_chunk(&index).unwrap().bytes, bytemuck::cast_slice::<_, u8>(&expected));
    }
    let asked = shards();
    assert!(asked.len() == 4 && asked[0].starts_with("HEAD"), "{asked:?}");
    assert!(asked[1].ends_with(" 192-387") && asked[2].ends_with(" 16-31"), "{asked:?}");
    assert_eq!(elements(open()), values);
    assert_eq!(shards().len(), 1);
}

/// A signature may allow GET alone, so the size of a value is asked for by a range of it, too.
#[test]
fn sizes_without_head() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("value"), [7; 300]).unwrap();
    let server = Server::of(scratch.path());
    let storage = open_storage(&server.url, &StorageOptions::default()).unwrap();
    server.answer("value", Answer::NoHead, 99);
    server.requests();
    assert_eq!(storage.size("value").unwrap(), Some(300));
    assert_eq!(server.requests(), ["HEAD /value", "GET /value 0-0"]);
    assert_eq!(storage.size("none").unwrap(), None);
}

/// From a server that sends no ranges, a pass reads each shard as a whole, once, however large it is.
#[test]
fn shards_without_ranges() {
    let scratch = tempfile::tempdir().unwrap();
    let (rows, columns) = (2400, 2000);
    let spec =
        ArraySpec::new(StoredType::F32, &[rows, columns], &[300, 500]).shard_shape(vec![rows, columns]);
    let writer = ArrayWriter::create(Arc::new(Folder::new(scratch.path())), "x", spec).unwrap();
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 1001) as f32).collect();
    assert!(size_of_val(&*values) > PARTED);
    writer.write(&[0, 0], &values).unwrap();
    writer.finish().unwrap();
    let server = Server::of(scratch.path());
    ["x/zarr.json", "x/c/0/0"].into_iter().for_each(|key| server.answer(key, Answer::Whole, 99));
    let array = ZarrArray::open(&server.url, "x", MissingChunk::Error).unwrap();
    assert!(array.shards().unwrap().are_whole);
    assert!(elements(array) == values);
    let requests = server.requests();
    assert_eq!(requests.iter().filter(|request| request.contains("/x/c/0/0")).count(), 1, "{requests:?}");
}

/// Documents and names come from consolidated metadata, and nothing is asked for that these do not name.
#[test]
fn consolidated_metadata_stand_in() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    write(folder, "a/x", ZarrFormat::V2);
    let document = |path: &str| serde_json::from_slice(&std::fs::read(folder.join(path)).unwrap()).unwrap();
    let v2: serde_json::Value = document("a/x/.zarray");
    write(folder, "b/x", ZarrFormat::V3);
    let v3: serde_json::Value = document("b/x/zarr.json");
    let group = serde_json::json!({ "zarr_format": 3, "node_type": "group", "consolidated_metadata": { "metadata": { "x": v3 } } });
    let all = serde_json::json!({ "metadata": { ".zgroup": { "zarr_format": 2 }, "x/.zarray": v2 } });
    for (name, path, document) in [("a", ".zmetadata", all), ("b", "zarr.json", group)] {
        let server = Server::of(folder);
        server.set(&format!("{name}/{path}"), document.to_string());
        let storage = open_storage(format!("{}/{name}", server.url), &StorageOptions::default()).unwrap();
        assert!(server.requests().len() <= 2);
        assert_eq!(storage.list("").unwrap(), ["x"]);
        let x = ZarrArray::open_in(&storage, "x", MissingChunk::Fill).unwrap();
        assert!(ZarrArray::open_in(&storage, "y", MissingChunk::Fill).is_err());
        assert_eq!(server.requests(), [""; 0]);
        assert_eq!(
            elements(x),
            elements(ZarrArray::open(folder.join(name), "x", MissingChunk::Fill).unwrap())
        );
        assert!(server.requests().iter().all(|request| request.starts_with(&format!("GET /{name}/x/"))));
    }
}

#[test]
fn options_are_checked() {
    let open = |url: &str, pairs: &[(&str, &str)]| {
        let options = StorageOptions::default();
        let options = pairs.iter().fold(options, |options, (key, value)| options.option(*key, *value));
        match super::super::remote::open(url, &options) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    let [secret, region] = [("aws_secret_access_key", "S"), ("aws_region", "r")];
    let id = ("access_key_id", "I");
    for (url, pairs, why) in [
        ("s3://b/x", &[id, secret, region][..], ""),
        ("s3://b/x", &[("anonymous", "true")], "`anonymous` is not an option"),
        ("s3://b/x", &[("skip_signature", "maybe"), region], "maybe"),
        ("s3://b/x", &[id, region], "SecretAccessKey"),
        ("s3://b/x?sig=S", &[], "has a query"),
        ("http://h/x", &[region], "`aws_region` is not an option"),
        ("http://h/x", &[("skip_signature", "true"), ("read_timeout", "5s")], ""),
        ("http://h/x", &[("fetches", "0")], "`fetches`"),
        ("http://h/x", &[("retry_timeout", "soon")], "`retry_timeout`"),
        ("http://h/x", &[("max_retries", "-1")], "`max_retries`"),
        ("http://", &[], "is no URL"),
        ("gs://b/x", &[("skip_signature", "true")], ""),
        ("az://b/x", &[("skip_signature", "true"), ("account_name", "ours")], ""),
        ("abfss://b@ours.dfs.core.windows.net/x", &[("skip_signature", "true")], ""),
    ] {
        let got = open(url, pairs);
        assert!(got.contains(why) && got.is_empty() == why.is_empty(), "{url} {pairs:?}: {got}");
        assert!(!got.contains("sig="), "{got}");
    }
    let why = open_storage("ftp://h/x", &StorageOptions::default()).unwrap_err().to_string();
    assert!(why.contains("s3:// gs:// az:// abfs:// abfss:// http:// https:// file://"), "{why}");
    assert!(matches!(
        open_storage("http://h/../x", &StorageOptions::default()),
        Err(Error::Io { .. } | Error::Store { .. })
    ));
}
