//! Compiled kernels in files, one image each: the user's cache, and the folders that releases ship.
//!
//! A file consists of lines of text that name the inputs of the image, then the deflated image. A file that is truncated, damaged, or made from other
//! inputs is treated as missing. A file gets its final name when it is complete, so that no process sees another's unfinished file.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, Read, Write as _},
    path::PathBuf,
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use sha2::{Digest, Sha256};

/// The maximum number of bytes of an image that is read; the largest image of this crate has some hundred thousand.
const MAX_BYTES: u64 = 64 << 20;

/// A key that identifies all inputs of an image.
#[derive(Clone, Debug)]
pub(super) struct Key {
    kernel: &'static str,
    arch: String,
    nvrtc: (i32, i32),
    digest: String,
}

impl Key {
    /// Makes the key from a kernel's program, its headers, the compiler's options and version, and the architecture.
    pub(super) fn new(
        kernel: &'static str,
        source: &str,
        headers: &[(&str, &str)],
        options: &str,
        arch: &str,
        nvrtc: (i32, i32),
    ) -> Self {
        let version = format!("{}.{}", nvrtc.0, nvrtc.1);
        let mut parts = vec![kernel, arch, &version, options, source];
        parts.extend(headers.iter().flat_map(|&(name, text)| [name, text]));
        let mut hash = Sha256::new();
        for part in parts {
            // Each part is preceded by its length, so that different parts cannot have the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self { kernel, arch: arch.into(), nvrtc, digest: hex(&hash.finalize()) }
    }

    fn file_name(&self) -> String {
        format!("{}-{}.image", self.kernel, self.digest)
    }

    /// Returns the text that a file begins with, up to the number of bytes and the digest of its image.
    fn head(&self) -> String {
        let kind = if self.arch.starts_with("sm_") { "cubin" } else { "ptx" };
        let Self { kernel, arch, nvrtc: (major, minor), digest } = self;
        format!(
            "teatime cuda image 1\nkernel {kernel}\nkey {digest}\n{kind} {arch}\nnvrtc {major}.{minor}\nbytes "
        )
    }
}

/// A folder of images.
#[derive(Clone, Debug)]
pub(super) struct Cache(PathBuf);

impl Cache {
    /// Makes a cache of the images in a folder, which need not exist.
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Returns the cache in `TEATIME_CACHE` if that is set (`None` if it is empty), otherwise in the platform's folder
    /// for caches (`None` if there is no such folder).
    pub(super) fn of_user() -> Option<Self> {
        let variable = |name| env::var_os(name).map(PathBuf::from);
        let absolute = |name| variable(name).filter(|path| path.is_absolute());
        let root = match variable("TEATIME_CACHE") {
            Some(root) if root.as_os_str().is_empty() => return None,
            Some(root) => root,
            None if cfg!(windows) => absolute("LOCALAPPDATA")?.join("teatime"),
            None if cfg!(target_os = "macos") => absolute("HOME")?.join("Library/Caches/teatime"),
            None => {
                absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?.join("teatime")
            }
        };
        Some(Self(root.join("cuda")))
    }

    /// Returns the image of a key if this folder has an intact one.
    pub(super) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        decode(key, &fs::read(self.0.join(key.file_name())).ok()?)
    }

    /// Stores the image of a key. Another process may store the same image at the same time. Fails with the operating
    /// system's error. A caller can continue without the cache.
    pub(super) fn put(&self, key: &Key, image: &[u8]) -> io::Result<()> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.0)?;
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.0.join(format!(".{}-{}-{unique}", key.file_name(), process::id()));
        let written = encode(key, image)
            .and_then(|file| fs::File::create_new(&unfinished)?.write_all(&file))
            .and_then(|()| fs::rename(&unfinished, self.0.join(key.file_name())));
        if written.is_err() {
            // The first error is the one to return.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }
}

fn encode(key: &Key, image: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = key.head().into_bytes();
    writeln!(file, "{} sha256 {}", image.len(), hex(&Sha256::digest(image)))?;
    let mut deflate = ZlibEncoder::new(file, Compression::best());
    deflate.write_all(image)?;
    deflate.finish()
}

fn decode(key: &Key, file: &[u8]) -> Option<Vec<u8>> {
    let rest = file.strip_prefix(key.head().as_bytes())?;
    let (line, deflated) = rest.split_at_checked(rest.iter().position(|&byte| byte == b'\n')?)?;
    let (count, digest) = str::from_utf8(line).ok()?.split_once(" sha256 ")?;
    let count: u64 = count.parse().ok().filter(|&count| count <= MAX_BYTES)?;
    let mut image = Vec::new();
    // Reads up to one byte more than expected, so that an image that is too long is detected.
    ZlibDecoder::new(&deflated[1..]).take(count + 1).read_to_end(&mut image).ok()?;
    (image.len() as u64 == count && hex(&Sha256::digest(&image)) == digest).then_some(image)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    /// A temporary folder of one test.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn cache(&self) -> Cache {
            Cache::new(self.0.path().join("cuda"))
        }

        /// Returns the only file of the cache.
        fn file(&self) -> PathBuf {
            let files: Vec<_> = fs::read_dir(self.0.path().join("cuda")).unwrap().collect();
            assert_eq!(files.len(), 1, "{files:?}");
            files[0].as_ref().unwrap().path()
        }
    }

    fn key(arch: &str) -> Key {
        Key::new("dosage", "source", &[("dev.cuh", "header")], "--std=c++17", arch, (13, 0))
    }

    fn image() -> Vec<u8> {
        (0..5000u32).flat_map(|i| (i * i).to_le_bytes()).collect()
    }

    #[test]
    fn images_come_back() {
        let folder = Folder::new();
        let cache = folder.cache();
        assert_eq!(cache.get(&key("sm_80")), None);
        for image in [Vec::new(), image()] {
            cache.put(&key("sm_80"), &image).unwrap();
            assert_eq!(cache.get(&key("sm_80")), Some(image));
        }
        folder.file();
    }

    #[test]
    fn keys_differ_by_everything() {
        let folder = Folder::new();
        let cache = folder.cache();
        cache.put(&key("sm_80"), b"cubin").unwrap();
        let header: &[_] = &[("dev.cuh", "header")];
        let others = [
            Key::new("matmul", "source", header, "--std=c++17", "sm_80", (13, 0)),
            Key::new("dosage", "sourc", header, "--std=c++17", "sm_80", (13, 0)),
            Key::new("dosage", "source", &[("dev.cuh", "heade")], "--std=c++17", "sm_80", (13, 0)),
            Key::new("dosage", "source", &[("dev.cu", "hheader")], "--std=c++17", "sm_80", (13, 0)),
            Key::new("dosage", "source", header, "--std=c++20", "sm_80", (13, 0)),
            Key::new("dosage", "source", header, "--std=c++17", "sm_86", (13, 0)),
            Key::new("dosage", "source", header, "--std=c++17", "sm_80", (12, 9)),
        ];
        for other in &others {
            assert_ne!(other.digest, key("sm_80").digest, "{other:?}");
            assert_eq!(cache.get(other), None, "{other:?}");
            // A file whose name alone matches the key is not accepted either.
            fs::copy(cache.0.join(key("sm_80").file_name()), cache.0.join(other.file_name())).unwrap();
            assert_eq!(cache.get(other), None, "{other:?}");
        }
    }

    #[test]
    fn damaged_files_are_ignored_and_rewritten() {
        let folder = Folder::new();
        let (cache, key, image) = (folder.cache(), key("sm_80"), image());
        cache.put(&key, &image).unwrap();
        let file = folder.file();
        let sound = fs::read(&file).unwrap();
        for length in 0..sound.len() {
            assert_eq!(decode(&key, &sound[..length]), None, "cut at {length} of {}", sound.len());
        }
        for place in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[place] ^= 0x20;
            // Some bits of deflated data have no effect.
            let read = decode(&key, &damaged);
            assert!(read.is_none_or(|read| read == image), "byte {place}");
        }
        let version = String::from_utf8_lossy(&sound[..40]).replace("image 1", "image 2");
        let absurd = format!("{}{} sha256 {}\n", key.head(), u64::MAX, "0".repeat(64));
        for foreign in [version.as_bytes(), absurd.as_bytes(), b"\x7fELF".as_slice(), &[0xff; 4096]] {
            fs::write(&file, foreign).unwrap();
            assert_eq!(cache.get(&key), None);
            cache.put(&key, &image).unwrap();
            assert_eq!(cache.get(&key).as_ref(), Some(&image));
        }
        assert_eq!(fs::read(folder.file()).unwrap(), sound);
    }

    #[test]
    fn writers_do_not_see_each_other() {
        let folder = Folder::new();
        let (cache, image) = (folder.cache(), image());
        cache.put(&key("sm_80"), &image).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        cache.put(&key("sm_80"), &image).unwrap();
                        assert_eq!(cache.get(&key("sm_80")).as_ref(), Some(&image));
                    }
                });
            }
        });
        folder.file();
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_cache() {
        let folder = Folder::new();
        fs::write(folder.0.path().join("cuda"), "a file stands here").unwrap();
        assert!(folder.cache().put(&key("sm_80"), b"cubin").is_err());
        assert_eq!(folder.cache().get(&key("sm_80")), None);
    }

    #[test]
    fn what_cannot_be_named_leaves_nothing() {
        let folder = Folder::new();
        let cache = folder.cache();
        // A folder exists at the path of the file.
        fs::create_dir_all(cache.0.join(key("sm_80").file_name()).join("x")).unwrap();
        assert!(cache.put(&key("sm_80"), b"cubin").is_err());
        folder.file();
    }
}
