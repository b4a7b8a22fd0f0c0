//! A FUSE file system that answers some requests only when a test says so: a disk that does not answer.
//!
//! The server implements the part of the protocol (linux/fuse.h, version 7.31) that reading files needs.

use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// The end of the names of files whose reads wait; a number may precede it.
pub const STALLED: &str = "stalled.bin";
/// The beginning of the names whose look-up waits; all of them are the same file.
pub const NOT_FOUND_YET: &str = "not-found-yet";
/// The file whose reads are answered at once.
pub const ANSWERED: &str = "answered.bin";
/// Each file's length.
pub const FILE_BYTES: usize = 200_000;
/// Each byte of them.
pub const CONTENT: u8 = b'd';

const ROOT_NODE: u64 = 1;
const ANSWERED_NODE: u64 = 2;
const NOT_FOUND_YET_NODE: u64 = 3;
/// The first of the files whose reads wait.
const STALLED_NODE: u64 = 4;
const REQUEST_BYTES_MAX: usize = 1 << 17;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// The mounted file system. Dropping it unmounts it; requests that wait fail then.
pub struct StalledDisk {
    directory: PathBuf,
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
}

impl StalledDisk {
    /// Mounts the file system on an existing directory; `None` if this process may not mount.
    pub fn mount(directory: &Path) -> Option<StalledDisk> {
        let is_root = rustix::process::geteuid().is_root();
        let file = File::options().read(true).write(true).open("/dev/fuse").ok().filter(|_| is_root)?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", file.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("no zero byte");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("stalled", directory, "fuse", flags, Some(options.as_c_str())).ok()?;
        let device = Arc::new(Device { file, state: Mutex::new(State::Stalled(Vec::new())) });
        let serving = Arc::clone(&device);
        let thread = thread::spawn(move || serving.serve());
        Some(StalledDisk { directory: directory.to_owned(), device, thread: Some(thread) })
    }

    /// Requests that wait.
    pub fn waiting_count(&self) -> usize {
        match &*self.device.lock() {
            State::Stalled(waiting) => waiting.len(),
            State::Answering => 0,
        }
    }

    /// Answers all requests, from now on too.
    pub fn release(&self) {
        let State::Stalled(waiting) = std::mem::replace(&mut *self.device.lock(), State::Answering) else { return };
        waiting.iter().for_each(|(request_id, answer)| self.device.answer(*request_id, answer));
    }
}

impl Drop for StalledDisk {
    fn drop(&mut self) {
        let unmounted = rustix::mount::unmount(&self.directory, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let (Ok(()), Some(thread)) = (unmounted, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

struct Device {
    file: File,
    state: Mutex<State>,
}

enum State {
    /// The requests that wait, with their answers.
    Stalled(Vec<(u64, Vec<u8>)>),
    Answering,
}

impl Device {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until the file system is unmounted.
    fn serve(&self) {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        while let Ok(length) = (&self.file).read(&mut buffer) {
            self.handle(&buffer[..length]);
        }
    }

    fn handle(&self, request: &[u8]) {
        let number = |at: usize, size: usize| {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(&request[at..at + size]);
            u64::from_ne_bytes(bytes)
        };
        let (operation, request_id, node) = (number(4, 4), number(8, 8), number(16, 8));
        let body = 40;
        match operation {
            // LOOKUP
            1 => match &request[body..request.len() - 1] {
                name if name.ends_with(STALLED.as_bytes()) => {
                    let number = std::str::from_utf8(&name[..name.len() - STALLED.len()]).expect("a number");
                    self.answer(request_id, &entry(STALLED_NODE + number.parse().unwrap_or(0)));
                }
                name if name == ANSWERED.as_bytes() => self.answer(request_id, &entry(ANSWERED_NODE)),
                name if name.starts_with(NOT_FOUND_YET.as_bytes()) => {
                    self.answer_later(request_id, entry(NOT_FOUND_YET_NODE));
                }
                _ => self.answer_error(request_id, ENOENT),
            },
            // FORGET, INTERRUPT, BATCH_FORGET have no answer.
            2 | 36 | 42 => {}
            // GETATTR: attributes that are valid for no time, so that each question comes here.
            3 => self.answer(request_id, &[vec![0; 16], attributes(node)].concat()),
            // OPEN, OPENDIR: a handle and flags.
            14 | 27 => self.answer(request_id, &[0; 16]),
            // READ
            15 => {
                let (offset, length) = (number(body + 8, 8) as usize, number(body + 16, 4) as usize);
                let content = vec![CONTENT; length.min(FILE_BYTES.saturating_sub(offset))];
                match node {
                    STALLED_NODE.. => self.answer_later(request_id, content),
                    _ => self.answer(request_id, &content),
                }
            }
            // STATFS
            17 => self.answer(request_id, &[0; 80]),
            // RELEASE, FLUSH, RELEASEDIR
            18 | 25 | 29 => self.answer(request_id, &[]),
            // INIT: version, no read-ahead, look-ups at the same time (FUSE_PARALLEL_DIROPS), 64 requests in the
            // background, and the least size of a write.
            26 => {
                let words: [u32; 16] = [7, 31, 0, 1 << 18, 64 << 16 | 64, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                self.answer(request_id, &words.map(u32::to_ne_bytes).concat());
            }
            _ => self.answer_error(request_id, ENOSYS),
        }
    }

    fn answer_later(&self, request_id: u64, answer: Vec<u8>) {
        match &mut *self.lock() {
            State::Stalled(waiting) => waiting.push((request_id, answer)),
            State::Answering => self.answer(request_id, &answer),
        }
    }

    fn answer(&self, request_id: u64, body: &[u8]) {
        self.write(request_id, 0, body);
    }

    fn answer_error(&self, request_id: u64, errno: i32) {
        self.write(request_id, -errno, &[]);
    }

    fn write(&self, request_id: u64, error: i32, body: &[u8]) {
        let length = 16 + body.len() as u32;
        let head = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &request_id.to_ne_bytes()].concat();
        // The call fails if the request was given up.
        let _ = (&self.file).write(&[&head, body].concat());
    }
}

/// `struct fuse_entry_out`: valid for no time.
fn entry(node: u64) -> Vec<u8> {
    [node.to_ne_bytes().to_vec(), vec![0; 32], attributes(node)].concat()
}

/// `struct fuse_attr` of a file that was changed in 1970, at no whole second: for the tag of such a file none of its
/// content is read.
fn attributes(node: u64) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_755;
    const REGULAR: u32 = 0o100_644;
    let (mode, length) = if node == ROOT_NODE { (DIRECTORY, 0) } else { (REGULAR, FILE_BYTES as u64) };
    let long = [node, length, 0, 1, 1, 1].map(u64::to_ne_bytes).concat();
    let short = [0, 1, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat();
    [long, short].concat()
}
