//! The registry of containers: an image is pushed in parts, as `docker push` does, and pulled.

use super::{Known, Running};
use sanderling_testkit::{TestDirectory, free_address, random_bytes, run_program, seed, wait_until};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

const LAYER_BYTES: usize = 20_000_000;
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

fn registry(directory: &TestDirectory, address: SocketAddr) -> Running {
    let config = format!(
        "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n",
        directory.argument("registry")
    );
    let config = directory.write("registry.yml", config.as_bytes());
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(config);
    let running = Running::start(command, "docker-registry");
    wait_until("the registry accepts connections", || TcpStream::connect(address).is_ok());
    running
}

#[test]
fn image_is_pushed_and_pulled_with_the_password_alone() {
    let (directory, address) = (TestDirectory::new(), free_address());
    let _registry = registry(&directory, address);
    let site =
        Known::start("A container registry behind a password", &[("127.0.0.1:5000", &address.to_string())], directory);
    let url = |path: &str| format!("https://registry.example.com{path}");
    let answer = site.ask(&url("/v2/"), &[]);
    assert_eq!(
        (answer.status, answer.all("www-authenticate")),
        (401, vec!["Basic realm=\"registry\", charset=\"UTF-8\""])
    );
    let user = ["-u", "ann:secret"];
    assert_eq!(site.status(&url("/v2/"), &user), (200, "{}".to_owned()));

    let layer = random_bytes(&mut fastrand::Rng::with_seed(seed()), LAYER_BYTES);
    let layer = site.directory.write("layer", &layer).display().to_string();
    let sum = run_program("sha256sum", "coreutils", &[&layer]).text();
    let digest = format!("sha256:{}", sum.split(' ').next().expect("a hash"));
    // As Docker does: an upload begins, its content follows without a length, and the digest ends it.
    let begun = site.ask(&url("/v2/birds/blobs/uploads/"), &[&user[..], &["-X", "POST"]].concat());
    let [place] = begun.all("location")[..] else { panic!("{begun:?}") };
    assert!(begun.status == 202 && place.starts_with("https://registry.example.com/v2/"), "{begun:?}");
    for front in ["--http1.1", "--http2"] {
        let begun = site.ask(&url("/v2/birds/blobs/uploads/"), &[&user[..], &[front, "-X", "POST"]].concat());
        let part =
            [front, "-X", "PATCH", "-H", "Expect:", "-H", "Content-Type: application/octet-stream", "-T", &layer];
        let chunked: &[&str] = if front == "--http1.1" { &["-H", "Transfer-Encoding: chunked"] } else { &[] };
        let patched = site.ask(begun.all("location")[0], &[&user[..], &part, chunked].concat());
        assert_eq!(patched.status, 202, "{front} {patched:?}");
        let end = format!("{}&digest={digest}", patched.all("location")[0]);
        assert_eq!(site.status(&end, &[&user[..], &[front, "-X", "PUT"]].concat()).0, 201, "{front}");
    }
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST_TYPE}\",\"config\":{{\"mediaType\":\
         \"application/vnd.oci.image.config.v1+json\",\"digest\":\"{digest}\",\"size\":{LAYER_BYTES}}},\"layers\":[]}}"
    );
    let kind = format!("Content-Type: {MANIFEST_TYPE}");
    let put = ["-X", "PUT", "-H", &kind, "--data-binary", &manifest];
    assert_eq!(site.status(&url("/v2/birds/manifests/latest"), &[&user[..], &put].concat()).0, 201);

    let accept = format!("Accept: {MANIFEST_TYPE}");
    let pulled = site.status(&url("/v2/birds/manifests/latest"), &[&user[..], &["-H", &accept]].concat());
    assert_eq!(pulled, (200, manifest));
    let copy = site.directory.argument("copy");
    let ended = site.curl(&url(&format!("/v2/birds/blobs/{digest}")), &[&user[..], &["-o", &copy]].concat());
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(run_program("cmp", "diffutils", &[&layer, &copy]).status.success());
    assert_eq!(site.status(&url("/v2/birds/manifests/latest"), &["-u", "ann:wrong"]).0, 401);
}
