//! Inputs behind URLs: their options, and their storages.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use teatime::{
    Cancel, Error, Result,
    store::{Storage, StorageOptions, local_path, open_storage, redacted, zip_archive},
};

/// Options of inputs behind URLs.
#[derive(Args, Debug)]
pub(crate) struct RemoteArgs {
    /// Send no credentials to s3://, gs:// and az://, as for public data
    ///
    /// Without this they are those of --storage-option, of the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) or of files; if there are none,
    /// none are sent.
    #[arg(long)]
    anonymous: bool,
    /// Server of s3://, gs:// or az:// in place of the cloud's own
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region of a bucket of S3 [default: that of the environment or of the AWS files, else the bucket is asked]
    #[arg(long)]
    region: Option<String>,
    /// Option of remote stores, such as `account_name=ours` or `read_timeout=60s`; may be given several times
    ///
    /// Keys are those of the Rust crate `object_store`, and fetches (requests at once, 64), `max_retries` (10), `retry_timeout` (180s) and
    /// profile (of the AWS files). Records show the keys alone.
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = Pair)]
    options: Vec<(String, String)>,
}

/// The remote inputs of the command.
#[derive(Default)]
struct Known {
    options: StorageOptions,
    /// The URLs as they were given, by those without secrets, which all else sees.
    urls: HashMap<PathBuf, PathBuf>,
    /// The URLs that were given with several secrets.
    mixed: HashSet<PathBuf>,
    storages: HashMap<PathBuf, Arc<dyn Storage>>,
}

/// A process runs one command.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteArgs {
    /// Makes these the options of all inputs of the process, whose requests end once `cancel` is set.
    pub(crate) fn set(&self, cancel: &Cancel) {
        let sugar = [
            ("skip_signature", self.anonymous.then_some("true")),
            ("endpoint", self.endpoint.as_deref()),
            ("region", self.region.as_deref()),
        ];
        let sugar = sugar.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let pairs = self.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(sugar);
        let options = StorageOptions::default().cancel(cancel.clone());
        known().options = pairs.fold(options, |options, (key, value)| options.option(key, value));
    }
}

/// Parses KEY=VALUE, with an error that does not show the text, which may be a secret.
#[derive(Clone)]
struct Pair;

impl TypedValueParser for Pair {
    type Value = (String, String);

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<(String, String), clap::Error> {
        let Some((key, value)) = value.to_str().and_then(|text| text.split_once('=')) else {
            let why = "a value of '--storage-option <KEY=VALUE>' is not KEY=VALUE\n";
            return Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, why).with_cmd(command));
        };
        Ok((key.trim().to_owned(), value.to_owned()))
    }
}

/// Returns a parser of the path or URL of an input. Of a URL, the query and other secrets are kept here.
pub(crate) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| {
        if let Some(local) = local_path(&path) {
            return local.into_owned();
        }
        let shown = PathBuf::from(redacted(&path.to_string_lossy()).trim_end_matches('/'));
        let mut known = known();
        if known.urls.insert(shown.clone(), path.clone()).is_some_and(|other| other != path) {
            known.mixed.insert(shown.clone());
        }
        shown
    })
}

pub(crate) fn is_remote(path: &Path) -> bool {
    local_path(path).is_none()
}

/// True if an input is a single file that is no zip archive: of URLs, those of .npy files are.
pub(crate) fn is_file(path: &Path) -> bool {
    if zip_archive(path).is_some() {
        return false;
    }
    let is_npy = || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"));
    if is_remote(path) { is_npy() } else { path.metadata().is_ok_and(|metadata| !metadata.is_dir()) }
}

/// Opens the storage of an input, once in a process. Fails for a URL that was given with several secrets.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn Storage>> {
    let (storage, url, options) = {
        let known = known();
        if known.mixed.contains(path) {
            let why = "is given twice, with other queries or credentials: one run reads a URL in one way";
            return Err(Error::store(path.display(), why));
        }
        let url = known.urls.get(path).cloned().unwrap_or_else(|| path.to_path_buf());
        (known.storages.get(path).cloned(), url, known.options.clone())
    };
    let storage = storage.map_or_else(|| open_storage(url, &options), Ok)?;
    known().storages.insert(path.to_path_buf(), Arc::clone(&storage));
    Ok(storage)
}

/// Returns the words of the command line without secrets.
pub(crate) fn command_line() -> Vec<String> {
    without_secrets(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    const OPTION: &str = "--storage-option";
    let mut is_pair = false;
    let shown = words.map(|word| {
        let was_pair = std::mem::replace(&mut is_pair, word == OPTION);
        match word.split_once('=') {
            Some((key, _)) if was_pair => format!("{key}=..."),
            Some((OPTION, pair)) => format!("{OPTION}={}=...", pair.split('=').next().unwrap_or_default()),
            _ => redacted(&word),
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hide_secrets() {
        let words = "teatime pca https://me:pw@host/x.vcz?sig=S --storage-option token=S --storage-option=key=S= --out o";
        let shown =
            "teatime pca https://host/x.vcz --storage-option token=... --storage-option=key=... --out o";
        assert_eq!(without_secrets(words.split(' ').map(str::to_owned)).join(" "), shown);
    }
}
