//! Options of remote storages.

use std::fmt;

use crate::Cancel;

/// The options of remote storages; local folders have none.
///
/// A key is one of `object_store` for the kind of the URL, with or without the kind's prefix: for `s3://` `region`, `endpoint`,
/// `skip_signature` (for public data), `access_key_id` and others; for `gs://` `service_account`; for `az://` `account_name`, `sas_key`;
/// for all of them `proxy_url`, `read_timeout` (30 s), `connect_timeout` (5 s). These are also read from the environment, as `AWS_REGION`,
/// `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`; an option wins. Further keys: `fetches`, the number of requests at once (64, or
/// `TEATIME_FETCHES`); `max_retries` (10) and `retry_timeout` (180s) of a request; for `s3://` `profile`, a profile of the AWS files.
///
/// ```
/// use teatime::store::StorageOptions;
///
/// let options = StorageOptions::default().option("skip_signature", "true").option("region", "eu-west-1");
/// // The values may be secrets.
/// assert_eq!(format!("{options:?}"), r#"StorageOptions(["skip_signature", "region"])"#);
/// ```
#[derive(Clone, Default)]
pub struct StorageOptions {
    pub(super) options: Vec<(String, String)>,
    #[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "there are no requests"))]
    pub(super) cancel: Cancel,
}

impl StorageOptions {
    /// Sets an option; the last value of a key counts. [`open_storage`](super::open_storage) checks it.
    #[must_use]
    pub fn option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((key.into(), value.into()));
        self
    }

    /// Sets the flag that ends requests under way, and with them the calls that wait for these. Passes over arrays end by the flag of their
    /// [`Run`](crate::Run), whatever a request waits for.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.options.iter().map(|(key, _)| key).collect();
        f.debug_tuple("StorageOptions").field(&keys).finish()
    }
}
