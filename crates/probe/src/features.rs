//! Tests, once and within a millisecond, what this kernel lets this process do.

use super::stopwatch::Stopwatch;
use sanderling_os::candidates::{cloexec, facts, ring, stream};
use sanderling_os::tcp::Listener;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// Something that a kernel or a container may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    /// `stat=statx`, for a way of a job, or the name of a call.
    pub(crate) name: String,
    /// Why not, if it is not there.
    pub(crate) missing: Option<String>,
}

/// All features, and the microseconds of processor time that the tests took.
pub(crate) fn test_all() -> (Vec<Feature>, f64) {
    let mut stopwatch = Stopwatch::default();
    let features = stopwatch.time(each);
    (features, stopwatch.cpu_ns() / 1e3)
}

fn each() -> Vec<Feature> {
    let ways = sanderling_os::features::FEATURES.iter().flat_map(|job| {
        job.variants().iter().map(|way| Feature {
            name: format!("{}={}", job.name(), way.name),
            missing: (!(way.is_supported)()).then(|| "the server's own test says no".to_owned()),
        })
    });
    let mut features: Vec<Feature> = ways.collect();
    features.extend(CANDIDATES.iter().map(|(name, test)| Feature {
        name: (*name).to_owned(),
        missing: test().err().map(|error| error.to_string()),
    }));
    features
}

type Test = fn() -> io::Result<()>;

/// What the server does without, but what is measured beside it.
const CANDIDATES: &[(&str, Test)] = &[
    ("newfstatat(fd, NULL)", || facts::by_newfstatat_without_path(open_null()?).map(drop)),
    ("newfstatat(fd, \"\")", || facts::by_newfstatat_of_empty_path(open_null()?).map(drop)),
    ("SO_REUSEPORT", || listener().map(drop)),
    ("cubic", || stream::use_cubic(&listener()?)),
    ("io_uring", ring::is_there),
];

fn open_null() -> io::Result<std::os::fd::OwnedFd> {
    cloexec::open_null(true)
}

/// On the loopback interface, on a port that nobody has.
fn listener() -> io::Result<Listener> {
    Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
