//! Turns `/proc/self/status` into what is in force for this process (proc_pid_status(5)).

use crate::error::with_context;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PATH: &str = "/proc/self/status";
/// Octets of the file: some 1,400, and ten for each group.
const STATUS_BYTES_MAX: usize = 1024 * 1024;

/// What the kernel says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The real, effective, saved and file-system user.
    pub user_ids: [u32; 4],
    /// The same of the group.
    pub group_ids: [u32; 4],
    /// The further groups.
    pub supplementary_group_ids: Vec<u32>,
    /// The sets of capabilities.
    pub capabilities: Capabilities,
    /// Whether no exec can give it more than it has.
    pub no_new_privileges: bool,
    /// Filters of system calls in force.
    pub seccomp_filter_count: u32,
    /// Its threads.
    pub thread_count: u32,
}

/// The sets of capabilities, a bit for each (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the kernel's set of that name")]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
}

/// Opens the file, which can then be read again and again, whatever the process may no longer open.
pub(super) fn open_status() -> io::Result<File> {
    File::open(PATH).map_err(|error| with_context("open", PATH, &error))
}

/// What it says now.
pub(super) fn read(status: &File) -> io::Result<ProcessStatus> {
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        match status.read_at(&mut text[length..], length as u64).map_err(|error| with_context("pread", PATH, &error))? {
            0 => break,
            read => length += read,
        }
        if length == text.len() {
            if length >= STATUS_BYTES_MAX {
                return Err(io::Error::other(format!("{PATH} does not end")));
            }
            text.resize(length * 2, 0);
        }
    }
    parse(&String::from_utf8_lossy(&text[..length]))
}

fn parse(text: &str) -> io::Result<ProcessStatus> {
    Ok(ProcessStatus {
        user_ids: four(field(text, "Uid")?)?,
        group_ids: four(field(text, "Gid")?)?,
        supplementary_group_ids: field(text, "Groups")?.split_whitespace().map(decimal).collect::<io::Result<_>>()?,
        capabilities: Capabilities {
            inheritable: mask(field(text, "CapInh")?)?,
            permitted: mask(field(text, "CapPrm")?)?,
            effective: mask(field(text, "CapEff")?)?,
            bounding: mask(field(text, "CapBnd")?)?,
            ambient: mask(field(text, "CapAmb")?)?,
        },
        no_new_privileges: field(text, "NoNewPrivs")? == "1",
        // Told since Linux 5.9; before, only whether there is one (2: SECCOMP_MODE_FILTER).
        seccomp_filter_count: match field(text, "Seccomp_filters") {
            Ok(count) => decimal(count)?,
            Err(_) => u32::from(field(text, "Seccomp").is_ok_and(|mode| mode == "2")),
        },
        thread_count: decimal(field(text, "Threads")?)?,
    })
}

fn field<'t>(text: &'t str, name: &str) -> io::Result<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| *key == name);
    found.map(|(_, value)| value.trim()).ok_or_else(|| io::Error::other(format!("{PATH} tells no {name}")))
}

fn four(value: &str) -> io::Result<[u32; 4]> {
    let numbers = value.split_whitespace().map(decimal).collect::<io::Result<Vec<u32>>>()?;
    numbers.try_into().map_err(|_| not_understood(value))
}

fn decimal(value: &str) -> io::Result<u32> {
    value.parse().map_err(|_| not_understood(value))
}

fn mask(value: &str) -> io::Result<u64> {
    u64::from_str_radix(value, 16).map_err(|_| not_understood(value))
}

fn not_understood(value: &str) -> io::Error {
    io::Error::other(format!("{PATH} tells \"{value}\", which is not understood"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\ta:b\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nThreads:\t11\n\
        CapInh:\t0000000000000001\nCapPrm:\t0000000000000002\nCapEff:\t0000000000000004\nCapBnd:\t000001ffffffffff\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn each_field_is_found() {
        let capabilities =
            Capabilities { inheritable: 1, permitted: 2, effective: 4, bounding: 0x1ff_ffff_ffff, ambient: 0 };
        let expected = ProcessStatus {
            user_ids: [1, 2, 3, 4],
            group_ids: [5, 6, 7, 8],
            supplementary_group_ids: vec![9, 10],
            capabilities,
            no_new_privileges: true,
            seccomp_filter_count: 3,
            thread_count: 11,
        };
        assert_eq!(parse(TEXT).expect("understood"), expected);
        let before_5_9 = TEXT.replace("Seccomp_filters:\t3\n", "");
        assert_eq!(parse(&before_5_9).expect("understood").seccomp_filter_count, 1);
    }

    #[test]
    fn what_is_missing_or_strange_is_an_error() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse(&TEXT.replace(from, to)).expect_err(to);
            assert_eq!(error.to_string(), expected);
        };
        check("Threads", "Strands", "/proc/self/status tells no Threads");
        check("1\t2\t3\t4", "1\t2\t3", "/proc/self/status tells \"1\t2\t3\", which is not understood");
        check("\t11\n", "\tmany\n", "/proc/self/status tells \"many\", which is not understood");
    }

    #[test]
    fn this_process_can_be_asked_again_and_again() {
        let status = open_status().expect("Linux has it");
        let facts = read(&status).expect("read");
        assert_eq!(facts.user_ids[1], rustix::process::geteuid().as_raw());
        assert_eq!(read(&status).expect("read again").user_ids, facts.user_ids);
    }
}
