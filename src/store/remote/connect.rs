//! Connections to stores, from URLs, options and the environment.

use std::{
    env,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use object_store::{
    ClientConfigKey, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, resolve_bucket_region},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    path::Path,
};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use url::Url;

use super::{fault::told, profile::Profile, runtime, wait};
use crate::{
    Cancel,
    store::{options::StorageOptions, place::decoded},
};

/// A store, and the settings of its requests.
pub(super) struct Connection {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    pub(super) can_list: bool,
    pub(super) fetches: usize,
    pub(super) retries: RetryConfig,
}

/// The number of requests at once, unless it is given.
const FETCHES: usize = 64;

/// The time in which a service of the machine's cloud has to answer, to give credentials.
const PROBE: Duration = Duration::from_secs(1);

type Options<'a> = Vec<(&'a str, &'a str)>;
type Why<T> = Result<T, String>;

/// Sets a builder's options: those of the environment whose names begin with `$prefix`, but for some, then those given.
macro_rules! set {
    ($builder:expr, $prefix:literal, $but:expr, $options:expr) => {{
        let but: &[&str] = $but;
        let mut builder = $builder;
        for (name, value) in env::vars_os() {
            if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
                && name.starts_with($prefix)
                && !but.contains(&name)
                && let Ok(key) = name.to_ascii_lowercase().parse()
            {
                builder = builder.with_config(key, value);
            }
        }
        for (key, value) in $options {
            let known = key.to_ascii_lowercase().parse().map_err(|_| unknown(key))?;
            builder = builder.with_config(known, *value);
        }
        builder
    }};
}

/// True if a builder has a value of one of these keys that is not that of the default.
macro_rules! has {
    ($builder:expr, $keys:expr) => {
        $keys.iter().any(|key| {
            $builder.get_config_value(key).is_some_and(|value| !matches!(&*value, "" | "false" | "auto"))
        })
    };
}

fn unknown(key: &str) -> String {
    format!("`{key}` is not an option of such a URL")
}

/// Connects to the store of a URL. Errors are texts without secrets.
pub(super) fn connect(text: &str, given: &StorageOptions) -> Why<Connection> {
    let mut url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    let is_http = matches!(url.scheme(), "http" | "https");
    if url.query().is_some() && !is_http {
        return Err("has a query (`?`), which only URLs of http and https have".to_owned());
    }
    let prefix = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
    let mut retries = RetryConfig::default();
    let mut fetches =
        env::var("TEATIME_FETCHES").ok().map_or(Ok(FETCHES), |text| number("TEATIME_FETCHES", &text))?;
    let mut profile = None;
    // The default of 30 s for a whole body would end large chunks from slow links.
    let mut client = ClientOptions::new().with_timeout_disabled().with_read_timeout(Duration::from_secs(30));
    let mut options: Options<'_> = Vec::new();
    for (key, value) in &given.options {
        match key.to_ascii_lowercase().as_str() {
            "fetches" => fetches = number(key, value)?,
            "max_retries" => {
                retries.max_retries = value.parse().map_err(|_| format!("`{key}` is not a whole number"))?;
            }
            "retry_timeout" => {
                let time = humantime::parse_duration(value);
                retries.retry_timeout =
                    time.map_err(|error| format!("`{key}` is no time such as 30s: {error}"))?;
            }
            "profile" | "aws_profile" if url.scheme() == "s3" => profile = Some(value.as_str()),
            lower => {
                if let Ok(key) = lower.parse::<ClientConfigKey>() {
                    client = client.with_config(key, value);
                }
                options.push((key, value));
            }
        }
    }
    // TLS has its provider from here on.
    runtime().map_err(|error| error.to_string())?;
    let builders = Builders { client, retries: retries.clone(), options, cancel: &given.cancel };
    let store = match url.scheme() {
        "s3" => builders.s3(&url, profile),
        "gs" => builders.gs(&url),
        "http" | "https" => builders.http(&mut url),
        _ => builders.azure(&url),
    };
    Ok(Connection { store: store?, prefix, can_list: !is_http, fetches, retries })
}

fn number(name: &str, text: &str) -> Why<usize> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| format!("`{name}` is not a whole number of at least 1"))
}

/// The settings that the builders of all stores get.
struct Builders<'a> {
    client: ClientOptions,
    retries: RetryConfig,
    options: Options<'a>,
    cancel: &'a Cancel,
}

impl Builders<'_> {
    /// Gives the option `endpoint` the name that it has in a kind of store.
    fn endpoint_is(&mut self, name: &'static str) {
        let endpoints = self.options.iter_mut().filter(|(key, _)| key.eq_ignore_ascii_case("endpoint"));
        endpoints.for_each(|(key, _)| *key = name);
    }

    fn s3(mut self, url: &Url, named: Option<&str>) -> Why<Arc<dyn ObjectStore>> {
        use AmazonS3ConfigKey as Key;
        // This variable counts before another one for endpoints, so the option sets it.
        self.endpoint_is("aws_endpoint_url_s3");
        let builder =
            AmazonS3Builder::new().with_client_options(self.client.clone()).with_retry(self.retries);
        // A profile that is named has other keys than the environment.
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        let but = if named.is_some() { &keys[..] } else { &[] };
        let mut builder = set!(builder.with_url(url.as_str()), "AWS_", but, &self.options);
        let skips = builder.get_config_value(&Key::SkipSignature).unwrap_or_default();
        let is_signed = !is_true(&skips);
        if is_signed && !has!(builder, [Key::AccessKeyId]) {
            let profile = Profile::read(named)?;
            let keys = [
                (Key::AccessKeyId, "aws_access_key_id"),
                (Key::SecretAccessKey, "aws_secret_access_key"),
                (Key::Token, "aws_session_token"),
            ];
            for (key, value) in keys.into_iter().filter_map(|(key, name)| Some((key, profile.get(name)?))) {
                builder = builder.with_config(key, value);
            }
            for (key, name) in [(Key::Region, "region"), (Key::Endpoint, "endpoint_url")] {
                if let Some(value) = profile.get(name).filter(|_| !has!(builder, [key])) {
                    builder = builder.with_config(key, value);
                }
            }
        }
        let sources = [
            Key::AccessKeyId,
            Key::WebIdentityTokenFile,
            Key::ContainerCredentialsRelativeUri,
            Key::ContainerCredentialsFullUri,
            Key::MetadataEndpoint,
        ];
        let is_disabled = || is_true(&env::var("AWS_EC2_METADATA_DISABLED").unwrap_or_default());
        let asks = || answers("PUT /latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60");
        // The store refuses what is neither true nor false.
        if skips == "false" && !has!(builder, sources) && (is_disabled() || !asks()) {
            builder = builder.with_skip_signature(true);
        }
        let endpoint =
            builder.get_config_value(&Key::S3Endpoint).or_else(|| builder.get_config_value(&Key::Endpoint));
        if endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
            builder = builder.with_allow_http(true);
        }
        if endpoint.is_none() && !has!(builder, [Key::Region]) {
            let region = resolve_bucket_region(url.host_str().unwrap_or_default(), &self.client);
            let region = wait(self.cancel, region).map_err(|error| error.to_string())?;
            // If the region is not known, the first request says what is wrong.
            builder = region.map_or_else(|_| builder.clone(), |region| builder.clone().with_region(region));
        }
        shared(builder.build())
    }

    fn gs(mut self, url: &Url) -> Why<Arc<dyn ObjectStore>> {
        use GoogleConfigKey as Key;
        self.endpoint_is("google_base_url");
        let builder =
            GoogleCloudStorageBuilder::new().with_client_options(self.client).with_retry(self.retries);
        let mut builder = set!(builder.with_url(url.as_str()), "GOOGLE_", &[], &self.options);
        let sources = [
            Key::ServiceAccount,
            Key::ServiceAccountKey,
            Key::ApplicationCredentials,
            Key::BearerToken,
            Key::SkipSignature,
        ];
        let name = if cfg!(windows) { "APPDATA" } else { "HOME" };
        let folder = if cfg!(windows) { "gcloud" } else { ".config/gcloud" };
        let file = || {
            let home = env::var_os(name).map(std::path::PathBuf::from).unwrap_or_default();
            home.join(folder).join("application_default_credentials.json").exists()
        };
        let asks = || answers("GET /computeMetadata/v1/instance/", "Metadata-Flavor: Google");
        if !has!(builder, sources) && !file() && !asks() {
            builder = builder.with_skip_signature(true);
        }
        if builder.get_config_value(&Key::BaseUrl).is_some_and(|base| base.starts_with("http://")) {
            builder = builder.with_config(Key::Client(ClientConfigKey::AllowHttp), "true");
        }
        shared(builder.build())
    }

    fn azure(self, url: &Url) -> Why<Arc<dyn ObjectStore>> {
        use AzureConfigKey as Key;
        let builder = MicrosoftAzureBuilder::new().with_client_options(self.client).with_retry(self.retries);
        let mut builder = set!(builder.with_url(url.as_str()), "AZURE_", &[], &self.options);
        let sources = [
            Key::AccessKey,
            Key::SasKey,
            Key::Token,
            Key::ClientId,
            Key::FederatedTokenFile,
            Key::UseAzureCli,
            Key::UseEmulator,
            Key::MsiEndpoint,
            Key::CredentialType,
            Key::SkipSignature,
        ];
        let asks = || answers("GET /metadata/instance?api-version=2021-02-01", "Metadata: true");
        if !has!(builder, sources) && !asks() {
            builder = builder.with_skip_signature(true);
        }
        if builder.get_config_value(&Key::Endpoint).is_some_and(|endpoint| endpoint.starts_with("http://")) {
            builder = builder.with_allow_http(true);
        }
        shared(builder.build())
    }

    fn http(self, url: &mut Url) -> Why<Arc<dyn ObjectStore>> {
        let mut client = self.client.with_allow_http(url.scheme() == "http");
        if !url.username().is_empty() {
            let pair = [url.username(), url.password().unwrap_or_default()].map(decoded).join(":");
            let value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair)));
            let value = value.map_err(|error| error.to_string())?;
            client = client.with_default_headers(HeaderMap::from_iter([(AUTHORIZATION, value)]));
            // A URL with a host can be without a name.
            let _ = (url.set_username(""), url.set_password(None));
        }
        for (key, _) in &self.options {
            let is_known = key.eq_ignore_ascii_case("skip_signature")
                || key.to_ascii_lowercase().parse::<ClientConfigKey>().is_ok();
            if !is_known {
                return Err(unknown(key));
            }
        }
        // The query stays: each request has it.
        url.set_path("/");
        let builder = HttpBuilder::new().with_url(url.as_str()).with_client_options(client);
        shared(builder.with_retry(self.retries).build())
    }
}

fn shared<S: ObjectStore>(built: object_store::Result<S>) -> Why<Arc<dyn ObjectStore>> {
    built.map(|store| Arc::new(store) as Arc<dyn ObjectStore>).map_err(|error| told(&error))
}

fn is_true(value: &str) -> bool {
    matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y")
}

/// True if the machine is in a cloud whose service for metadata knows this request.
fn answers(request: &str, header: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&([169, 254, 169, 254], 80).into(), PROBE)?;
        stream.set_read_timeout(Some(PROBE))?;
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: 169.254.169.254\r\n{header}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        std::io::Result::Ok(start.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}
