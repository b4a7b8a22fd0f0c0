//! Chromium with the demo, and with a site that has a script, a style sheet, a manifest and a sound.

use super::{BOTH, CONFIG, domain};
use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run_to_end, wait_until};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

/// Starting a browser takes long on a busy machine.
const STARTS: u32 = 4;
const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --ignore-certificate-errors";
const SOUND_SECONDS: usize = 1_500;
const SAMPLES_PER_SECOND: u32 = 8_000;

#[test]
fn chromium_loads_the_demo_over_http_2() {
    let arguments = ["demo", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--dns", "127.0.0.1:0"];
    let mut server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 1 });
    let url = format!("https://localhost:{}/", server.encrypted("https").port());
    let directory = TestDirectory::new();
    let (profile, log) = (directory.argument("profile"), directory.argument("network.json"));
    let mut chromium = Command::new("chromium");
    chromium.args(OPTIONS.split_whitespace());
    chromium.args(["--dump-dom", "--enable-logging=stderr"]);
    chromium.args([format!("--user-data-dir={profile}"), format!("--log-net-log={log}"), url]);
    let ended = run_to_end(chromium, DEADLINE * STARTS);
    let page = ended.text();
    assert!(page.contains("<title>Sanderling: it works</title>") && page.ends_with("</html>\n"), "{ended}");
    assert_eq!(console(&ended.errors), [""; 0]);
    let log = fs::read_to_string(log).expect("Chromium has written it");
    // The icon is perhaps not requested before the end.
    for path in ["/", "/style.css", "/sanderling.svg"] {
        assert!(log.contains(&format!("\":path: {path}\"")), "{path} was not requested over HTTP/2");
    }
    assert!(log.contains("\":status: 200\"") && !log.contains("\":status: 4"), "the statuses");
}

/// Chromium's console messages for a page, from its standard error.
fn console(errors: &str) -> Vec<&str> {
    errors.lines().filter_map(|line| line.split_once(":CONSOLE:")).map(|(_, line)| line).collect()
}

/// A browser, which is stopped when it is dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The script of the page jumps to the end of a sound, and then writes the only line to the console.
#[test]
fn chromium_uses_modules_styles_and_a_sound_by_ranges_over_http_2() {
    let directory = domain();
    let files: [(&str, &[u8]); 7] = [
        ("index.html", include_bytes!("media/index.html")),
        ("style.css", include_bytes!("media/style.css")),
        ("app.mjs", include_bytes!("media/app.mjs")),
        ("other.mjs", include_bytes!("media/other.mjs")),
        ("icon.svg", include_bytes!("media/icon.svg")),
        ("site.webmanifest", include_bytes!("media/site.webmanifest")),
        ("sound.wav", &sound()),
    ];
    files.iter().for_each(|(path, content)| drop(directory.write(&format!("public/{path}"), content)));
    let keys = "security_headers = \"strict\"\ncache = \"fingerprinted\"\ncors = \"*\"\n\
        [log]\naccess = \"access.log\"\nformat = \"$request|$status|$http_range\"\n";
    directory.replace("sanderling.toml", &[CONFIG, keys.as_bytes()].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let url = format!("https://localhost:{}/", server.encrypted("https").port());
    let mut chromium = Command::new("chromium");
    chromium.args(OPTIONS.split_whitespace());
    chromium.args(["--enable-logging=stderr", "--remote-debugging-port=0"]);
    chromium.args([format!("--user-data-dir={}", directory.argument("profile")), url]);
    let errors = directory.argument("errors");
    chromium.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors).expect("created"));
    let _browser = Browser(chromium.spawn().expect("chromium is installed: cargo xtask setup"));
    let read_errors = || fs::read_to_string(&errors).expect("text");
    let read_log = || fs::read_to_string(directory.path().join("access.log")).unwrap_or_default();
    wait_until("the first request", || !read_log().is_empty());
    wait_until("a line in the console", || !console(&read_errors()).is_empty());
    let errors = read_errors();
    let expected = format!("\"end: {SOUND_SECONDS} s, at {} s, true\"", SOUND_SECONDS - 10);
    assert!(matches!(console(&errors)[..], [line] if line.contains(&expected)), "{errors}");
    let of_sound = |log: &str| log.matches("GET /sound.wav HTTP/2.0|206|bytes=").count();
    wait_until("the responses", || of_sound(&read_log()) >= 2);
    let log = read_log();
    assert!(log.contains("GET /sound.wav HTTP/2.0|206|bytes=0-\n"), "{log}");
    for path in ["", "style.css", "app.mjs", "other.mjs"] {
        assert!(log.contains(&format!("GET /{path} HTTP/2.0|200|-\n")), "{path}: {log}");
    }
    assert!(log.lines().all(|line| line.contains("|20")), "{log}");
}

/// A sound of 12 MB (RIFF/WAVE, PCM of 8 bits), longer than what a browser loads beforehand.
fn sound() -> Vec<u8> {
    let sample_count = SOUND_SECONDS as u32 * SAMPLES_PER_SECOND;
    let mut sound = b"RIFF".to_vec();
    sound.extend((36 + sample_count).to_le_bytes());
    sound.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    sound.extend([SAMPLES_PER_SECOND, SAMPLES_PER_SECOND].map(u32::to_le_bytes).as_flattened());
    sound.extend(b"\x01\0\x08\0data");
    sound.extend(sample_count.to_le_bytes());
    sound.resize(sound.len() + sample_count as usize, 128);
    sound
}
