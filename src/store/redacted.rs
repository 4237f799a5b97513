//! Texts without secrets.

/// Returns a text without what may be secret in its URLs: queries, and the names and passwords before their hosts.
///
/// ```
/// use teatime::store::redacted;
///
/// let text = "no answer from https://me:key@host/x.vcz?sig=abc: refused";
/// assert_eq!(redacted(text), "no answer from https://host/x.vcz refused");
/// assert_eq!(redacted("s3://id:key@bucket/x?a='b<c"), "s3://bucket/x");
/// assert_eq!(redacted("abfss://container@account/x"), "abfss://container@account/x");
/// ```
pub fn redacted(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        // Containers of Azure stand before the host.
        let is_container =
            ["abfs://", "abfss://"].iter().any(|end| before.to_ascii_lowercase().ends_with(end));
        out.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`');
        let (url, behind) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let url = url.split_once('?').map_or(url, |(url, _)| url);
        let host = &url[..url.find('/').unwrap_or(url.len())];
        let name = host.rfind('@').filter(|_| !is_container).map_or(0, |at| at + 1);
        out.push_str(&url[name..]);
        rest = behind;
    }
    out + rest
}
