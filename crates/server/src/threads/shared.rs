//! The state that all threads of a server share.

use crate::backend_problems::BackendProblems;
use crate::backend_servers::BackendServers;
use crate::clock::{Clock, Milliseconds};
use crate::files::file_cache::FileCache;
use crate::files::file_reads::FileReads;
use crate::files::jobs::JobQueue;
use crate::lifecycle::Lifecycle;
use crate::limits::buffer_budget::{BufferBudget, PieceLimits};
use crate::limits::permits::Permits;
use crate::limits::request_budget::{RequestBudget, RequestRate};
use crate::log::log_queue::LogQueue;
use crate::log::query_log::ThreadQueryLog;
use crate::logins::authenticator::Authenticator;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::protocols::connection::Protocol;
use crate::snapshot::Snapshot;
use crate::statistics::{SlotNames, Statistics, ThreadStatistics};
use crate::threads::late_replies::LateReplies;
use sanderling_dns::{RequestInfo, ZoneEntry, ZoneMap};
use sanderling_log_format::LogKind;
use sanderling_os::clock::monotonic_ms;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shared state of a server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) drain_timeout: Duration,
    pub(crate) files: FileCache,
    pub(crate) jobs: Arc<JobQueue>,
    /// Shared with its thread, which outlives the server by a check.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Shared with threads that outlive the server if a disk does not answer.
    pub(crate) reads: Arc<FileReads>,
    /// For each [`LogKind`]. Shared with the threads that write the logs, which may outlive the server.
    log_queues: [Arc<LogQueue>; LogKind::ALL.len()],
    pub(crate) metrics: Metrics,
    pub(crate) backend_problems: Arc<BackendProblems>,
    pub(crate) backend_servers: Arc<BackendServers>,
    late_replies: Mutex<LateReplies>,
    pub(crate) lifecycle: Lifecycle,
    /// For connections of each [`Protocol`].
    permits: [Permits; 2],
    pub(crate) request_budget: RequestBudget,
    pub(crate) buffers: BufferBudget,
    /// For each [`Protocol`]: a worker asks the others to close an idle connection, since it has none itself.
    eviction_wanted: [AtomicBool; 2],
    snapshot: Mutex<Snapshot>,
    /// The names of the items that are counted separately.
    slot_names: Mutex<SlotNames>,
    /// Zones that were replaced, until no thread answers from them: freeing a large zone takes too long for a worker.
    replaced_zones: Mutex<Vec<Arc<ZoneMap>>>,
    /// Incremented by each replacement, so that an iteration that finds it unchanged takes no lock.
    snapshot_version: AtomicU64,
    /// When the server was created, on the monotonic clock.
    start_ms: Milliseconds,
}

impl Shared {
    pub(crate) fn new(snapshot: Snapshot, options: Options, drain_timeout: Duration) -> Shared {
        let start_ms = monotonic_ms();
        let jobs = Arc::new(JobQueue::default());
        let shared = Shared {
            files: FileCache::new(options.open_files, Arc::clone(&jobs), start_ms),
            authenticator: Arc::new(Authenticator::new(options.passwords, Arc::clone(&jobs))),
            reads: Arc::new(FileReads::new(Arc::clone(&jobs))),
            jobs,
            log_queues: LogKind::ALL.map(|kind| Arc::new(LogQueue::new(kind, options.request_log_queue_bytes_max))),
            metrics: Metrics::new(options.statistics),
            backend_problems: Arc::default(),
            backend_servers: Arc::default(),
            late_replies: Mutex::new(LateReplies {
                statistics: options.statistics.map(|options| Box::new(ThreadStatistics::new(options))),
                ..LateReplies::default()
            }),
            lifecycle: Lifecycle::default(),
            permits: [
                Permits::new(options.http.connections_max, options.http.connections_per_client_max),
                Permits::new(options.dns.tcp_connections_max, options.dns.tcp_connections_per_client_max),
            ],
            request_budget: RequestBudget::new(RequestRate::new(
                options.http.requests_per_second_max,
                options.http.requests_at_once_max,
            )),
            buffers: BufferBudget::new(options.connection_buffers_bytes_max),
            eviction_wanted: Default::default(),
            snapshot: Mutex::new(snapshot),
            slot_names: Mutex::default(),
            replaced_zones: Mutex::default(),
            snapshot_version: AtomicU64::new(0),
            options,
            drain_timeout,
            start_ms,
        };
        shared.assign_slots(&mut shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner));
        shared
    }

    pub(crate) fn log_queue(&self, log: LogKind) -> &Arc<LogQueue> {
        &self.log_queues[log as usize]
    }

    /// Begins, changes or ends `log`, as `snapshot` says.
    pub(crate) fn update_query_log(&self, log: &mut Option<ThreadQueryLog>, snapshot: &Snapshot) {
        let query_log = (snapshot.query_log.as_ref(), self.log_queue(LogKind::Queries));
        let dnstap = (snapshot.dnstap.as_deref(), self.log_queue(LogKind::Dnstap));
        ThreadQueryLog::update(log, query_log, dnstap);
    }

    /// Says where the sites and zones of a new snapshot are counted.
    fn assign_slots(&self, snapshot: &mut Snapshot) {
        let Some(options) = self.options.statistics else { return };
        let sites = snapshot.sites.all().iter().map(|site| site.hosts.first().map_or("*", String::as_str));
        let zones = snapshot.zones.entries().iter().map(ZoneEntry::apex);
        let mut names = self.slot_names.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.slots = names.assign(sites, zones, options);
    }

    /// Counts and logs a reply that is sent later than the others.
    pub(crate) fn record_late_reply(&self, info: &RequestInfo, reply: &[u8]) {
        let mut late = self.late_replies.lock().unwrap_or_else(PoisonError::into_inner);
        let (snapshot, version) = self.snapshot();
        if late.snapshot_version != Some(version) {
            late.snapshot_version = Some(version);
            self.update_query_log(&mut late.log, &snapshot);
        }
        late.record(info, reply, &snapshot.slots);
    }

    /// The sums of the detailed counts; `None` if there are none.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        let threads = self.metrics.threads();
        let late = self.late_replies.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.slot_names.lock().unwrap_or_else(PoisonError::into_inner);
        let of_threads = threads.iter().filter_map(|thread| thread.statistics.as_deref());
        names.sum(of_threads.chain(late.statistics.as_deref()))
    }

    /// The current snapshot and its version.
    pub(crate) fn snapshot(&self) -> (Snapshot, u64) {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        (snapshot.clone(), self.snapshot_version())
    }

    #[inline]
    pub(crate) fn snapshot_version(&self) -> u64 {
        // Acquire pairs with the Release of `update_snapshot`.
        self.snapshot_version.load(Ordering::Acquire)
    }

    /// Replaces parts of the snapshot.
    pub(crate) fn update_snapshot(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let zones = Arc::clone(&snapshot.zones);
        change(&mut snapshot);
        self.assign_slots(&mut snapshot);
        if !Arc::ptr_eq(&zones, &snapshot.zones) {
            self.lock_replaced_zones().push(zones);
        }
        // Release pairs with the Acquire of `snapshot_version`: a thread that sees the new number finds the new
        // snapshot.
        self.snapshot_version.fetch_add(1, Ordering::Release);
    }

    /// Frees replaced zones from which no thread answers.
    pub(crate) fn free_replaced_zones(&self) {
        self.lock_replaced_zones().retain(|zones| Arc::strong_count(zones) > 1);
    }

    fn lock_replaced_zones(&self) -> MutexGuard<'_, Vec<Arc<ZoneMap>>> {
        self.replaced_zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pieces in which connections are served now.
    pub(crate) fn piece_limits(&self) -> PieceLimits {
        PieceLimits::new(self.buffers.is_scarce(), self.options.connection_buffer_bytes_max)
    }

    /// The permits for connections of `protocol`.
    pub(crate) fn permits(&self, protocol: Protocol) -> &Permits {
        &self.permits[protocol as usize]
    }

    /// Asks the workers to close an idle connection of `protocol`.
    pub(crate) fn request_eviction(&self, protocol: Protocol) {
        self.eviction_wanted[protocol as usize].store(true, Ordering::Relaxed);
        self.jobs.wake_workers();
    }

    #[inline]
    pub(crate) fn is_eviction_wanted(&self, protocol: Protocol) -> bool {
        self.eviction_wanted[protocol as usize].load(Ordering::Relaxed)
    }

    /// Ends such a request. If two workers have closed a connection for it, one permit is left over.
    pub(crate) fn end_eviction_request(&self, protocol: Protocol) {
        self.eviction_wanted[protocol as usize].store(false, Ordering::Relaxed);
        self.jobs.wake_workers();
    }

    /// A clock that counts from the server's start.
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.start_ms)
    }

    /// Makes every thread stop at its next iteration until the returned value is dropped: a new snapshot is announced
    /// and locked.
    #[cfg(test)]
    pub(crate) fn stop_all_threads(&self) -> impl Drop + '_ {
        let held = self.snapshot.lock().expect("no panic");
        self.snapshot_version.fetch_add(1, Ordering::Release);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::sites::{DefaultSite, Sites};
    use sanderling_dns::HashSeed;

    #[test]
    fn replaced_zones_are_freed_on_request_when_no_thread_uses_them() {
        let zones = || ZoneMap::new(HashSeed(1), []);
        let snapshot = Snapshot::new(Sites::new(Vec::new(), DefaultSite::None), zones());
        let replaced = Arc::downgrade(&snapshot.zones);
        let shared = Shared::new(snapshot, Options::default(), Duration::ZERO);
        let (of_worker, _) = shared.snapshot();
        shared.update_snapshot(|snapshot| snapshot.zones = Arc::new(zones()));
        shared.update_snapshot(|_| {});
        shared.free_replaced_zones();
        assert!(replaced.strong_count() > 0, "a worker uses them");
        drop(of_worker);
        assert!(replaced.strong_count() > 0, "the worker does not free them");
        shared.free_replaced_zones();
        assert_eq!(replaced.strong_count(), 0);
        assert!(shared.lock_replaced_zones().is_empty());
    }
}
