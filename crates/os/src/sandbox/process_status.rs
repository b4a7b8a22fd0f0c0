//! Reads the credentials and restrictions of this process from `/proc/self/status` (proc_pid_status(5)).

use crate::error::with_context;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PATH: &str = "/proc/self/status";
/// Bytes of the file: about 1,400, and ten per group.
const STATUS_BYTES_MAX: usize = 1024 * 1024;

/// The credentials and restrictions of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The real, effective, saved and file-system user ID.
    pub user_ids: [u32; 4],
    /// The real, effective, saved and file-system group ID.
    pub group_ids: [u32; 4],
    /// The supplementary group IDs.
    pub supplementary_group_ids: Vec<u32>,
    /// The capability sets.
    pub capabilities: Capabilities,
    /// Whether an exec cannot grant privileges (`no_new_privs`).
    pub no_new_privileges: bool,
    /// The number of system call filters.
    pub seccomp_filter_count: u32,
    /// The number of threads.
    pub thread_count: u32,
}

/// The capability sets, one bit per capability (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the set of that name")]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
}

/// Opens the file, which stays readable when the process may no longer open it.
pub(super) fn open_status() -> io::Result<File> {
    File::open(PATH).map_err(|error| with_context("open", PATH, &error))
}

/// Reads the file from its start.
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
                return Err(io::Error::other(format!("{PATH} has more than {STATUS_BYTES_MAX} bytes")));
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
        // Linux before 5.9 only has the mode (2: SECCOMP_MODE_FILTER).
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
    found.map(|(_, value)| value.trim()).ok_or_else(|| io::Error::other(format!("{PATH} has no field {name}")))
}

fn four(value: &str) -> io::Result<[u32; 4]> {
    let numbers = value.split_whitespace().map(decimal).collect::<io::Result<Vec<u32>>>()?;
    numbers.try_into().map_err(|_| invalid_value(value))
}

fn decimal(value: &str) -> io::Result<u32> {
    value.parse().map_err(|_| invalid_value(value))
}

fn mask(value: &str) -> io::Result<u64> {
    u64::from_str_radix(value, 16).map_err(|_| invalid_value(value))
}

fn invalid_value(value: &str) -> io::Error {
    io::Error::other(format!("{PATH} has the invalid value \"{value}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\ta:b\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nThreads:\t11\n\
        CapInh:\t0000000000000001\nCapPrm:\t0000000000000002\nCapEff:\t0000000000000004\nCapBnd:\t000001ffffffffff\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn all_fields_are_parsed() {
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
        assert_eq!(parse(TEXT).expect("valid"), expected);
        let before_5_9 = TEXT.replace("Seccomp_filters:\t3\n", "");
        assert_eq!(parse(&before_5_9).expect("valid").seccomp_filter_count, 1);
    }

    #[test]
    fn missing_field_and_invalid_value_are_errors() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse(&TEXT.replace(from, to)).expect_err(to);
            assert_eq!(error.to_string(), expected);
        };
        check("Threads", "Strands", "/proc/self/status has no field Threads");
        check("1\t2\t3\t4", "1\t2\t3", "/proc/self/status has the invalid value \"1\t2\t3\"");
        check("\t11\n", "\tmany\n", "/proc/self/status has the invalid value \"many\"");
    }

    #[test]
    fn open_file_can_be_read_repeatedly() {
        let status = open_status().expect("opened");
        let first = read(&status).expect("read");
        assert_eq!(first.user_ids[1], rustix::process::geteuid().as_raw());
        assert_eq!(read(&status).expect("read again").user_ids, first.user_ids);
    }
}
