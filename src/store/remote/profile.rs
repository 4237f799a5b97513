//! Profiles of the AWS files, which `object_store` does not read.

use std::{env, fs, path::PathBuf};

/// The values of a profile, with those of its section in the file of credentials before those in the file of settings.
#[derive(Debug, Default)]
pub(super) struct Profile(Vec<(String, String)>);

impl Profile {
    /// Reads the profile of that name, or else the one that `AWS_PROFILE` names, or the default one. Fails with a
    /// text if a profile that was named is in neither file, or has no keys but another way to get them.
    pub(super) fn read(given: Option<&str>) -> Result<Self, String> {
        let named = given.map(str::to_owned).or_else(|| env::var("AWS_PROFILE").ok());
        let name = named.as_deref().unwrap_or("default");
        let home = env::home_dir().unwrap_or_default();
        let file = |variable: &str, name: &str| {
            let path = env::var_os(variable).map_or_else(|| home.join(".aws").join(name), PathBuf::from);
            fs::read_to_string(path).unwrap_or_default()
        };
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let settings = file("AWS_CONFIG_FILE", "config");
        let is_own = |section: &str| {
            section == name || section.strip_prefix("profile").is_some_and(|rest| rest.trim() == name)
        };
        let values = section(&credentials, is_own).into_iter().chain(section(&settings, is_own));
        let profile = Self(values.collect());
        if profile.0.is_empty() && named.is_some() {
            return Err(format!("the AWS files have no profile `{name}`"));
        }
        let other = ["sso_session", "sso_start_url", "role_arn", "credential_process", "login_session"]
            .into_iter()
            .find(|key| profile.get(key).is_some());
        match other.filter(|_| profile.get("aws_access_key_id").is_none()) {
            Some(key) => Err(format!(
                "the AWS profile `{name}` has no keys but `{key}`: run `aws configure export-credentials --profile {name} --format env`, \
                 and set the variables that it prints; for public data, the option `skip_signature` (--anonymous)"
            )),
            None => Ok(profile),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// Returns the values of a file's sections for whose names `is_own` is true.
fn section(text: &str, is_own: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let (mut values, mut is_in) = (Vec::new(), false);
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[') {
            is_in = is_own(name.split(']').next().unwrap_or_default().trim());
        } else if is_in && let Some((key, value)) = line.split_once('=') {
            // Indented lines are values of a nested setting, such as `s3 =`.
            if !line.starts_with([' ', '\t', '#', ';']) {
                values.push((key.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_section() {
        let text = "[default]\nregion = a\n[profile b ]\n# region = c\nregion=d\ns3 =\n  region = e\n[other]\nregion = f\n";
        let of = |name: &str| Profile(section(text, |section| section == name));
        let regions = ["default", "profile b", "none"].map(|name| of(name).get("region").map(str::to_owned));
        assert_eq!(regions, [Some("a".to_owned()), Some("d".to_owned()), None]);
    }
}
