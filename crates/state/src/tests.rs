//! The folder after each operation, and after a crash between the steps of one.

use super::*;

#[test]
fn folder_of_another_user_version_or_mode_is_found_before_it_is_used() {
    let folder = tempfile::tempdir().expect("created");
    let path = folder.path().join("state");
    let me = folder.path().metadata().expect("it exists").uid();
    assert!(check(&path, me).is_ok_and(|warning| warning.is_none()), "it can be created");
    drop({
        prepare(&path, None).expect("created");
        let state = StateFolder::open(&path).expect("opened");
        state.write("zones/a.test.zone", b"text").expect("written");
        state
    });
    assert!(check(&path, me).expect("it can be used").is_none());
    let error = check(&path, me + 1).expect_err("of another user").to_string();
    assert!(error.contains("belongs to user") && error.contains("chown -R"), "{error}");
    let mode = |mode| fs::set_permissions(path.join("zones"), fs::Permissions::from_mode(mode)).expect("changed");
    mode(0o500);
    let error = check(&path, me).expect_err("read-only").to_string();
    assert!(error.contains("zones lacks the permissions rwx of its owner; change its owner"), "{error}");
    mode(0o700);
    // The agent can write this at any time.
    (0..5).for_each(|number| fs::create_dir_all(path.join(format!("zones/of/{number}"))).expect("created"));
    let entry_mode = |name: &str, mode| {
        fs::set_permissions(path.join("zones/of").join(name), fs::Permissions::from_mode(mode)).expect("changed");
    };
    ["0", "1", "2", "3"].iter().for_each(|name| entry_mode(name, 0));
    let warning = check(&path, me).expect("it can be used").expect("a warning").to_string();
    let is_named = warning.matches("lacks the permissions rwx of its owner").count() == 3;
    assert!(is_named && warning.contains(", and 1 more; the zones and certificates concerned"), "{warning}");
    drop(StateFolder::open(&path).expect("the agent starts"));
    ["0", "1", "2", "3"].iter().for_each(|name| entry_mode(name, 0o700));
    fs::write(path.join(VERSION_FILE), "99\n").expect("written");
    let error = check(&path, me).expect_err("a later version").to_string();
    assert!(error.contains("has version 99, and this program supports version"), "{error}");
    assert!(error.contains("install the later version again") && !error.contains("another folder"), "{error}");
    fs::write(path.join(VERSION_FILE), "text\n").expect("written");
    let error = check(&path, me).expect_err("no version").to_string();
    assert!(error.contains("restore the folder from its backup"), "{error}");
}

#[test]
fn copy_that_was_restored_into_the_folder_is_noticed() {
    let (_directory, path) = folder();
    let me = fs::metadata(&path).expect("created").uid();
    let copy = path.join("sanderling-2026-11-28");
    prepare(&copy, None).expect("created");
    fs::write(copy.join(VERSION_FILE), "1\n").expect("written");
    let error = check(&path, me).expect_err("new keys would be made").to_string();
    assert!(error.contains(&format!("cp -a {}/. {}/", copy.display(), path.display())), "{error}");
    fs::write(path.join(VERSION_FILE), "1\n").expect("written");
    let warning = check(&path, me).expect("it has its own content").expect("a warning").to_string();
    assert!(warning.contains("is a state folder in the state folder"), "{warning}");
    fs::remove_dir_all(&copy).expect("removed");
    assert!(check(&path, me).expect("it can be used").is_none());
}

#[test]
fn unfinished_file_is_removed_or_takes_the_place_of_another_one() {
    let (_directory, path) = folder();
    let state = StateFolder::open(&path).expect("opened");
    state.write("zones/a.zone", b"before").expect("written");
    let names = || {
        let entries = fs::read_dir(path.join("zones")).expect("there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("read").file_name()).collect();
        names.sort();
        names
    };
    let (mut one, mut other) = (state.begin_file("zones").expect("begun"), state.begin_file("zones").expect("begun"));
    one.append(b"af").expect("written");
    other.append(b"other").expect("written");
    one.append(b"ter").expect("written");
    assert_eq!((names().len(), state.read("zones/a.zone").expect("read")), (3, Some(b"before".to_vec())));
    let mut text = String::new();
    other.rewind().expect("read");
    other.read_to_string(&mut text).expect("read");
    assert_eq!(text, "other");
    drop(other);
    state.finish_file(one, "zones/a.zone").expect("renamed");
    assert_eq!((names(), state.read("zones/a.zone").expect("read")), (vec!["a.zone".into()], Some(b"after".to_vec())));
    // After a crash.
    std::mem::forget(state.begin_file("zones").expect("begun"));
    drop(state);
    drop(StateFolder::open(&path).expect("opened"));
    assert_eq!(names(), ["a.zone"]);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").mode() & 0o777
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("created");
    let path = directory.path().join("state");
    prepare(&path, None).expect("created");
    (directory, path)
}

#[test]
fn only_the_owner_reads_what_is_stored() {
    let (_directory, path) = folder();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    let state = StateFolder::open(&path).expect("opened");
    state.write("acme/ca.example/account.json", b"secret").expect("written");
    state.store_certificate("example.com", b"chain", b"key").expect("stored");
    assert_eq!(state.read("acme/ca.example/account.json").expect("read"), Some(b"secret".to_vec()));
    for name in ["", "acme", "acme/ca.example", "certificates", "certificates/example.com"] {
        assert_eq!(mode(&path.join(name)), 0o700, "{name}");
    }
    for name in ["version", "acme/ca.example/account.json", "certificates/example.com/privkey.pem"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
}

#[test]
fn chain_and_key_change_together() {
    let (_directory, path) = folder();
    let state = StateFolder::open(&path).expect("opened");
    assert_eq!(state.chain("a-1.example").expect("read"), None);
    for number in 1..=4_u8 {
        state.store_certificate("a-1.example", &[b'c', number], &[b'k', number]).expect("stored");
        let read = |file| fs::read(path.join("certificates/a-1.example").join(file)).expect("read");
        assert_eq!((read(CHAIN_FILE), read(KEY_FILE)), (vec![b'c', number], vec![b'k', number]));
    }
    // A reader that has followed the link before still finds both files.
    let mut kept: Vec<_> =
        entries(&path.join(GENERATIONS)).expect("read").iter().map(|(path, _)| generation_of(path)).collect();
    kept.sort_unstable();
    assert_eq!(kept, [3, 4]);
}

#[test]
fn private_key_that_a_crash_has_left_is_removed_with_its_generation() {
    let (_directory, path) = folder();
    let state = StateFolder::open(&path).expect("opened");
    (0..4).for_each(|_| state.store_certificate("a-1.example", b"chain", b"key").expect("stored"));
    drop(state);
    for old in [1, 2] {
        let old = path.join(format!("generations/a-1.example-{old}"));
        fs::create_dir(&old).expect("created");
        fs::write(old.join(KEY_FILE), b"old key").expect("written");
    }
    let state = StateFolder::open(&path).expect("opened");
    let exists = |number: u64| path.join(format!("generations/a-1.example-{number}")).exists();
    assert_eq!([1, 2, 3, 4].map(exists), [false, false, true, true]);
    assert_eq!(state.chain("a-1.example").expect("read"), Some(b"chain".to_vec()));
}

#[test]
fn crash_leaves_the_content_before_or_after_a_change() {
    let (_directory, path) = folder();
    let state = StateFolder::open(&path).expect("opened");
    state.write("orders/example.com.json", b"old").expect("written");
    state.store_certificate("example.com", b"chain", b"key").expect("stored");
    drop(state);
    // The steps of changes that were not finished.
    for unfinished in
        ["orders/.new-example.com.json", "certificates/.new-example.com", "generations/example.com-2/fullchain.pem"]
    {
        fs::create_dir_all(path.join(unfinished).parent().expect("a folder")).expect("created");
        fs::write(path.join(unfinished), b"half").expect("written");
    }
    fs::create_dir_all(path.join("generations/other.example-1")).expect("created");
    let state = StateFolder::open(&path).expect("opened");
    assert_eq!(state.read("orders/example.com.json").expect("read"), Some(b"old".to_vec()));
    assert_eq!(state.chain("example.com").expect("read"), Some(b"chain".to_vec()));
    assert!(
        !path.join("orders/.new-example.com.json").exists() && !path.join("certificates/.new-example.com").exists()
    );
    assert!(!path.join("generations/example.com-2").exists() && !path.join("generations/other.example-1").exists());
    state.store_certificate("example.com", b"chain 2", b"key 2").expect("stored");
    assert_eq!(state.chain("example.com").expect("read"), Some(b"chain 2".to_vec()));
}

#[test]
fn folder_has_one_owner() {
    let (_directory, path) = folder();
    let first = StateFolder::open(&path).expect("opened");
    let error = StateFolder::open(&path).expect_err("locked").to_string();
    assert!(error.starts_with("another process uses the state folder /"), "{error}");
    drop(first);
    StateFolder::open(&path).expect("opened");
}

#[test]
fn folder_of_a_later_version_is_refused() {
    let (_directory, path) = folder();
    for (version, expected) in [
        ("2\n", "has version 2, and this program supports version 1; install the later"),
        ("x", "is not a state folder"),
    ] {
        fs::write(path.join(VERSION_FILE), version).expect("written");
        let error = StateFolder::open(&path).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn names_do_not_lead_out_of_the_folder() {
    let (_directory, path) = folder();
    let state = StateFolder::open(&path).expect("opened");
    for name in ["", "..", "../x", "/etc/passwd", "a/../../x", "."] {
        state.write(name, b"").expect_err(name);
        state.store_certificate(name, b"", b"").expect_err(name);
    }
}

#[test]
fn errors_have_a_remedy() {
    let error = |kind| failed("write", Path::new("/x"), &io::Error::from(kind)).to_string();
    assert!(error(ErrorKind::StorageFull).contains("; free some space"));
    assert!(error(ErrorKind::PermissionDenied).contains("; change the folder's owner to the server's user"));
    let (directory, path) = folder();
    let error = prepare(&directory.path().join("a/b"), None).expect_err("no folder").to_string();
    assert!(error.contains("; create the folder above it"), "{error}");
    fs::write(path.join("file"), b"").expect("written");
    prepare(&path.join("file"), None).expect_err("a file");
    let other = fs::metadata(&path).expect("ours").uid() + 1;
    let error = prepare(&path, Some((other, other))).expect_err("another user").to_string();
    assert!(error.contains(&format!("chown -R {} /", name_of(other))), "{error}");
}

#[test]
fn copy_is_a_folder_of_its_own_although_the_folder_changes_meanwhile() {
    let (directory, target) = (tempfile::tempdir().expect("created"), tempfile::tempdir().expect("created"));
    let state = StateFolder::open(directory.path()).expect("opened");
    state.write("acme/a/account.json", b"account").expect("written");
    state.store_certificate("example.com", b"chain 0", b"key 0").expect("stored");
    let (path, is_over) = (directory.path().to_owned(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..200 {
                let text = |what| format!("{what} {number}").into_bytes();
                state.store_certificate("example.com", &text("chain"), &text("key")).expect("stored");
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut number = 0;
        while number < 10 || !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            number += 1;
            let to = target.path().join(format!("copy-{number}"));
            // While the folder keeps changing, there may be no copy.
            if copy(&path, &to).is_err() {
                assert!(!to.exists());
                continue;
            }
            let copied = StateFolder::open(&to).expect("a state folder");
            let read = |file: &str| {
                let content = copied.read(&format!("certificates/example.com/{file}")).expect("read").expect("copied");
                String::from_utf8(content).expect("text")
            };
            assert_eq!(read(CHAIN_FILE).strip_prefix("chain "), read(KEY_FILE).strip_prefix("key "));
            assert_eq!(copied.read("acme/a/account.json").expect("read").as_deref(), Some(&b"account"[..]));
            assert_eq!(fs::metadata(to.join("version")).expect("copied").mode() & 0o777, 0o600);
        }
    });
    copy(&path, &target.path().join("last")).expect("nothing changes any more");
    copy(&path, &target.path().join("last")).expect_err("the folder exists");
    copy(target.path(), &target.path().join("other")).expect_err("it is no state folder");
    let error = copy(&path, &target.path().join("missing/copy")).expect_err("there is no such folder").to_string();
    assert!(error.ends_with("create this folder for the copy, or specify another one"), "{error}");
    for inside in ["copy", "certificates/copy"] {
        let error = copy(&path, &path.join(inside)).expect_err("the next copy would have it").to_string();
        assert!(error.contains(" itself; specify a folder elsewhere"), "{error}");
    }
}

#[test]
fn copy_takes_no_more_space_than_the_folder() {
    let (directory, target) = (tempfile::tempdir().expect("created"), tempfile::tempdir().expect("created"));
    drop(StateFolder::open(directory.path()).expect("opened"));
    let (path, to) = (directory.path().join("zones/long"), target.path().join("copy"));
    let file = File::create(&path).expect("created");
    (&file).write_all(b"start").expect("written");
    file.set_len(1 << 26).expect("a hole");
    copy(directory.path(), &to).expect("copied");
    let copied = fs::metadata(to.join("zones/long")).expect("copied");
    assert!(copied.len() == 1 << 26 && copied.blocks() * 512 < 1 << 20, "{} blocks", copied.blocks());
    assert_eq!(fs::read(to.join("zones/long")).expect("read"), fs::read(&path).expect("read"));
    fs::remove_dir_all(&to).expect("removed");
    file.set_len(sanderling_os::file::free_bytes(target.path()).expect("known") + (1 << 30)).expect("a hole");
    let error = copy(directory.path(), &to).expect_err("no disk has room for it").to_string();
    assert!(error.contains("has room for") && !to.exists(), "{error}");
}

#[test]
fn copy_that_fails_leaves_nothing() {
    let (directory, target) = (tempfile::tempdir().expect("created"), tempfile::tempdir().expect("created"));
    let state = StateFolder::open(directory.path()).expect("opened");
    state.store_certificate("example.com", b"chain", b"key").expect("stored");
    // A socket cannot be opened as a file.
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).expect("bound");
    let to = target.path().join("copy");
    let error = copy(directory.path(), &to).expect_err("a socket cannot be read").to_string();
    assert!(error.contains("cannot read") && !to.exists(), "{error}");
}
