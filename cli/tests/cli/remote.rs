//! Tests of inputs behind URLs.

use teatime::openings::{Answer, Server};

#[cfg(unix)]
use crate::support::Busy;
use crate::support::{Scratch, copy, fixture};

/// Returns the fixture of calls in a scratch folder, and a server of that folder.
fn served() -> (Scratch, Server, String) {
    let scratch = Scratch::new();
    copy(&fixture("biallelic.vcz"), &scratch.join("x.vcz"));
    teatime::store::write_npy(scratch.join("x.npy"), &[1.0, 2.0, 3.0, 5.0, 8.0, 13.0], [3, 2]).unwrap();
    let server = Server::of(scratch.join("x.vcz").parent().unwrap());
    let url = server.url.clone();
    (scratch, server, url)
}

/// A command writes the same bytes for a URL as for a path, and shows no secret.
#[test]
fn results_are_those_of_the_folder() {
    let (scratch, server, url) = served();
    let secrets = "--storage-option user_agent=SECRET --report r.html --json";
    for (command, input) in [
        ("pca IN --out OUT -k 2", "x.vcz"),
        ("svd IN --out OUT", "x.npy"),
        ("blur IN OUT/x.zarr --sigma 1 --axes 0,1", "x.vcz/call_genotype"),
    ] {
        let words = |input: &str, out: &str| command.replace("IN", input).replace("OUT", out);
        let [local, remote] = ["local", "remote"].map(|of| format!("{of}-{}", &command[..3]));
        scratch.ok(&words(input, &local));
        let secret = format!("{}/{input}?sig=SECRET", url.replace("//", "//me:SECRET@"));
        let ran = scratch.ok(&format!("{} {secrets}", words(&secret, &remote)));
        assert!(ran.out.contains(&format!("{url}/{input}")) && !ran.out.contains("SECRET"), "{}", ran.out);
        assert!(!ran.err.contains("SECRET") && !scratch.text("r.html").contains("SECRET"), "{}", ran.err);
        let [local, remote] = [local, remote].map(|out| scratch.results(&out));
        assert!(local.len() > 1 && local == remote, "{command}");
        let requests = server.requests();
        let are_secret = requests.iter().all(|request| request.contains("?sig=SECRET"));
        assert!(!requests.is_empty() && are_secret, "{requests:?}");
    }
}

#[test]
fn errors_name_what_to_do() {
    let (scratch, server, url) = served();
    server.answer("x.vcz/call_genotype/0.0.0", Answer::Status("403 Forbidden", "", ""), 99);
    server.answer("x.vcz/call_genotype/c/0/0/0", Answer::Status("403 Forbidden", "", ""), 99);
    scratch.refused(&format!("pca {url}/x.vcz --out out"), 1, &["call_genotype", "403", "--anonymous"]);
    let said = "`region` is not an option of such a URL";
    scratch.refused(&format!("pca {url}/x.vcz --out out --region r"), 1, &[said]);
    scratch.refused("pca ftp://host/x.vcz --out out", 1, &["ftp://host/x.vcz", "s3://", "https://"]);
    scratch.refused("pca http://127.0.0.1:1/x.bed --out out", 1, &["a .bed is read from disks alone"]);
    scratch.refused("pca x.vcz --out out --storage-option sas_key:SECRET", 2, &["KEY=VALUE"]);
    let said = scratch.run("pca x.vcz --out out --storage-option sas_key:SECRET").err;
    assert!(!said.contains("SECRET"), "{said}");
    let words = format!("svd {url}/x.npy?version=1 {url}/x.npy?version=2 --out out");
    scratch.refused(&words, 1, &["x.npy", "with other queries"]);
}

/// A signal ends a command whose store does not answer, while it opens and while it reads.
#[cfg(unix)]
#[test]
fn interrupted() {
    for keys in [["x.vcz/zarr.json"; 2], ["x.vcz/call_genotype/0.0.0", "x.vcz/call_genotype/c/0/0/0"]] {
        let (scratch, server, url) = served();
        keys.iter().for_each(|key| server.answer(key, Answer::Hang, 99));
        let asked = || server.seen().iter().any(|request| keys.iter().any(|key| request.contains(key)));
        let run = Busy::start(scratch.command(&format!("pca {url}/x.vcz --out out")), asked).unwrap();
        run.signal("-TERM");
        let (code, err) = run.end();
        assert_eq!((code, err.as_str()), (143, "interrupted\n"));
        assert!(!scratch.join("out").exists());
    }
}
